"""Widgets for planning and watching distributed training. Knows nothing of workbench."""

from workbench_widgets.monitor import Monitor

__all__ = ["Monitor"]
