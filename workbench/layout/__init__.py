"""WHO does what: axes and degrees, the rank grid, and everything a run must agree on."""

from workbench.layout.layout import Axis, Layout

__all__ = ["Axis", "Layout"]
