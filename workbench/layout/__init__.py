"""WHO does what: axes and degrees, the rank grid, and everything a run must agree on."""

from workbench.layout.layout import Axis, Layout
from workbench.layout.toml_file import load_layout

__all__ = ["Axis", "Layout", "load_layout"]
