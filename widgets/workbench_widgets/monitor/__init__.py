"""The live monitor of a run."""

from workbench_widgets.monitor.widget import Monitor

__all__ = ["Monitor"]
