"""The layout builder: a picture of a cluster in which a layout is made by hand."""

from workbench_widgets.builder.widget import Builder

__all__ = ["Builder"]
