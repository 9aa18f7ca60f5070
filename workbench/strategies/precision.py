"""Computes in a lower precision while weights, gradients and moments stay float32."""

from typing import Any

import torch
from torch import nn


def compute_in(module: nn.Module, dtype: torch.dtype) -> None:
    """Let every part of a module compute with its weights cast to `dtype`.

    The cast is differentiable: gradients arrive in the weights' own precision. It
    happens anew in each forward, also in one that a backward repeats. FSDP2 casts by
    itself and needs none of this.
    """
    for part in module.modules():
        if next(part.parameters(recurse=False), None) is not None:
            object.__setattr__(part, "forward", _Cast(part, dtype))


class _Cast:
    """The forward of a module with its parameters cast for the time of the call."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._module = module
        self._forward = module.forward
        self._dtype = dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        held = self._module._parameters
        cast: Any = {
            name: None if parameter is None else parameter.to(self._dtype)
            for name, parameter in held.items()
        }
        self._module._parameters = cast
        try:
            return self._forward(*args, **kwargs)
        finally:
            self._module._parameters = held
