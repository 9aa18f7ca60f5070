"""Any torch optimizer, with its states born in a tier of choice.

Torch's optimizers make their states in their first step by `zeros_like` and its kin. A
function mode around that step makes these in the tier instead; host and disk tensors are
ordinary CPU tensors, so every later step computes where they lie, bit for bit as ever.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workbench.offload.placement import placed
from workbench.offload.tiers import Tier

#: Makes an optimizer for some parameters, with groups as it likes.
OptimizerOf = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

#: How torch's optimizers make a state: Adam and RMSprop by the first, Adagrad by the
#: second, SGD's momentum by the last.
_MAKERS = (
    torch.zeros_like,
    torch.full_like,
    torch.empty_like,
    torch.clone,
    torch.Tensor.clone,
)


class StatesIn(TorchFunctionMode):
    """Inside, tensors made like another one are made in a tier."""

    def __init__(self, tier: Tier) -> None:
        super().__init__()
        self._tier = tier

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _MAKERS and isinstance(made, torch.Tensor) and made.ndim > 0:
            return placed(made, self._tier)
        return made


def make_in(
    tier: Tier, optimizer_of: OptimizerOf, parameters: list[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Make an optimizer; states that it makes at once, as Adagrad, are in the tier."""
    with StatesIn(tier):
        return optimizer_of(parameters)


def step_in(tier: Tier, optimizer: torch.optim.Optimizer) -> None:
    """Step an optimizer; states that it makes now are made in the tier.

    Only a first step makes any, so only that one goes through the mode.
    """
    if any(optimizer.state.values()):
        optimizer.step()
        return
    with StatesIn(tier):
        optimizer.step()


def keep_states_in(tier: Tier, optimizer: torch.optim.Optimizer) -> None:
    """Let the states that an optimizer makes in its steps be made in a tier."""
    mode = StatesIn(tier)
    optimizer.register_step_pre_hook(lambda *_: mode.__enter__() and None)
    optimizer.register_step_post_hook(lambda *_: mode.__exit__(None, None, None))


def state_bytes(optimizer_of: OptimizerOf, parameters: Iterable[torch.Tensor]) -> int:
    """Return the bytes of an optimizer's states, found by a step on a tiny parameter.

    Args:
        optimizer_of: Makes the optimizer.
        parameters: Whose states are asked for; shapes and dtypes count.
    """
    per_dtype: dict[torch.dtype, float] = {}
    total = 0.0
    for parameter in parameters:
        if parameter.dtype not in per_dtype:
            per_dtype[parameter.dtype] = _state_share(optimizer_of, parameter.dtype)
        total += parameter.nbytes * per_dtype[parameter.dtype]
    return round(total)


def _state_share(optimizer_of: OptimizerOf, dtype: torch.dtype) -> float:
    tiny = torch.nn.Parameter(torch.ones(4, 4, dtype=dtype))
    tiny.grad = torch.ones_like(tiny)
    optimizer = optimizer_of([tiny])
    optimizer.step()
    states = optimizer.state[tiny].values()
    made = sum(s.nbytes for s in states if torch.is_tensor(s) and s.ndim > 0)
    return made / tiny.nbytes
