"""Workbench: plan, launch, work on and watch distributed training from a notebook.

This front door is imported by no module inside. Each function imports what it needs
when it is called, so that `import workbench as wb` and Tab stay instant.
"""

from typing import Any

from workbench.errors import WorkbenchError
from workbench.layout import Layout

__all__ = ["Layout", "WorkbenchError"]
__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """Register `%%distributed` and `%distributed`: what `%load_ext workbench` calls."""
    from workbench.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again: what `%unload_ext workbench` calls."""
    from workbench.notebook.extension import unload

    unload(shell)
