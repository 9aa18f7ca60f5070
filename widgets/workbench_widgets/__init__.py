"""Widgets for planning and watching distributed training. Knows nothing of workbench."""

__all__: list[str] = []
