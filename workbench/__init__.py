"""Workbench: plan, launch, work on and watch distributed training from a notebook.

This front door is imported by no module inside. Each function imports what it needs
when it is called, so that `import workbench as wb` and Tab stay instant.
"""

from typing import Any

from workbench.errors import WorkbenchError
from workbench.layout import Layout
from workbench.model import ModelSpec

__all__ = ["Layout", "WorkbenchError", "trace"]
__version__ = "0.1.0"


def trace(
    module: Any, example_inputs: tuple[Any, ...], *, name: str | None = None
) -> ModelSpec:
    """Describe any `nn.Module` as a model to plan with, without allocating it.

    Args:
        module: Any module; built under `torch.device("meta")` it costs no memory.
        example_inputs: Positional inputs; dim 0 of each is the batch.
        name: What to call the model; its class name otherwise.

    Raises:
        ModelError: The forward fails on these inputs or branches on tensor values.

    Example:
        `wb.trace(net, (torch.zeros(1, 2048, dtype=torch.int64),))`
    """
    from workbench.tracing import trace

    return trace(module, example_inputs, name=name)


def load_ipython_extension(shell: Any) -> None:
    """Register `%%distributed` and `%distributed`: what `%load_ext workbench` calls."""
    from workbench.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again: what `%unload_ext workbench` calls."""
    from workbench.notebook.extension import unload

    unload(shell)
