"""Widgets for planning and watching distributed training. Knows nothing of workbench."""

from workbench_widgets.builder import Builder
from workbench_widgets.monitor import Monitor
from workbench_widgets.runs import RunList
from workbench_widgets.versus import Versus

__all__ = ["Builder", "Monitor", "RunList", "Versus"]
