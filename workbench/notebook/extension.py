"""What `%load_ext workbench` does to a notebook, and how it is undone."""

from typing import Any

from workbench.notebook.completion import matcher
from workbench.notebook.magics import DistributedMagics
from workbench.notebook.transform import Transformer


def load(shell: Any) -> None:
    """Register the magics, the awaiting form of cells, and completion."""
    if "DistributedMagics" in shell.magics_manager.registry:
        return
    magics = DistributedMagics(shell)
    shell.register_magics(magics)
    transformer = Transformer(lambda: magics.default_on)
    shell.input_transformers_cleanup.append(transformer)
    shell.Completer.custom_matchers.append(matcher())


def unload(shell: Any) -> None:
    """Take them away; sessions stay open."""
    shell.magics_manager.registry.pop("DistributedMagics", None)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("distributed", None)
    shell.input_transformers_cleanup[:] = [
        each
        for each in shell.input_transformers_cleanup
        if not isinstance(each, Transformer)
    ]
    shell.Completer.custom_matchers[:] = [
        each
        for each in shell.Completer.custom_matchers
        if getattr(each, "__name__", "") != "distributed_matcher"
    ]
