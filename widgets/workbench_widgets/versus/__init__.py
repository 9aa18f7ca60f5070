"""One run beside another, and all that is known of it."""

from workbench_widgets.versus.widget import Versus

__all__ = ["Versus"]
