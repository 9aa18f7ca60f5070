"""Widgets for planning and watching distributed training. Knows nothing of workbench."""

from workbench_widgets.builder import Builder
from workbench_widgets.monitor import Monitor
from workbench_widgets.runs import RunList

__all__ = ["Builder", "Monitor", "RunList"]
