"""What a process should have imported before ranks are forked from it."""

import importlib

#: Torch imports these at the first step, checkpoint or sharding: seconds, and bytes
#: that would otherwise be counted against the model.
_AT_FIRST_USE = (
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
)


def warm() -> None:
    """Import what a first step, checkpoint or sharding would import."""
    for name in _AT_FIRST_USE:
        importlib.import_module(name)
