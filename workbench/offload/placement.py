"""Parameters and gradients of any module in a tier of choice, FSDP2's shards included.

On a CPU-only machine the gathered layers that FSDP2 computes with stay on the device,
the shards between two uses lie in the tier: ZeRO-3 with a host or disk tier.
"""

import weakref

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from workbench.offload.tiers import Tier


def placed(tensor: torch.Tensor, tier: Tier) -> torch.Tensor:
    """Return a copy of a tensor in a tier; of a DTensor, this rank's part of it."""
    if not isinstance(tensor, DTensor):
        return tier.place(tensor)
    return DTensor.from_local(
        tier.place(tensor.to_local()),
        tensor.device_mesh,
        tensor.placements,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def place_parameters(module: nn.Module, tier: Tier) -> None:
    """Move a module's parameters and buffers, in place, one after the other."""
    module._apply(lambda tensor: placed(tensor, tier))


def place_gradients(module: nn.Module, tier: Tier) -> None:
    """Let every gradient move to a tier as soon as it is made; later ones add there."""

    def move(parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        note = moved.get(id(parameter))
        if note is None or note() is not gradient:
            parameter.grad = placed(gradient, tier)
            moved[id(parameter)] = weakref.ref(parameter.grad)

    #: Weak, so that a gradient that is set to None is freed.
    moved: dict[int, weakref.ref[torch.Tensor]] = {}
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(move)
