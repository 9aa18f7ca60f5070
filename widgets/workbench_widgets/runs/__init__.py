"""A list of runs to choose from."""

from workbench_widgets.runs.widget import RunList

__all__ = ["RunList"]
