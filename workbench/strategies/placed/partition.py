"""Which rank holds which parameters: contiguous parts of nearly equal cost."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from workbench.errors import LayoutError


def cut_points(costs: Sequence[float], num_parts: int) -> tuple[int, ...]:
    """Return where each part begins, such that the dearest part is as cheap as can be.

    Dynamic programme over contiguous parts, none of them empty.

    Raises:
        LayoutError: More parts than units.

    >>> cut_points([1, 1, 1, 3], 2)
    (0, 3)
    """
    if not 1 <= num_parts <= len(costs):
        raise LayoutError(
            f"{len(costs)} units cannot be cut into {num_parts} parts",
            hint=f"at most {len(costs)} parts",
        )
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    # best[e]: (dearest part, cuts) of the first e units in so many parts.
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for part in range(num_parts):
        units_after = num_parts - part - 1
        best = {
            end: min(
                (max(dearest, sums[end] - sums[begin]), (*cuts, begin))
                for begin, (dearest, cuts) in best.items()
                if begin < end
            )
            for end in range(part + 1, len(costs) - units_after + 1)
        }
    return best[len(costs)][1]


def balance(
    net: nn.Module, inputs: tuple[Any, ...], *, num_parts: int
) -> Mapping[str, int]:
    """Return which part each module with parameters of its own belongs to.

    Modules stand in the order of their first use; a part's cost is its forward FLOPs,
    counted on the meta device, so nothing is computed.

    Args:
        net: Any module.
        inputs: Example inputs; their values do not matter.
        num_parts: Ranks.

    Raises:
        LayoutError: The forward branches on data, which has no value here; or too few
            modules.
    """
    survey = Survey(net)
    try:
        survey.run(inputs)
    except (RuntimeError, NotImplementedError) as error:
        raise LayoutError(
            f"the forward of {type(net).__name__} needs values: {error}",
            hint="say which module lies where: place(net, {'encoder': 0, ...}, ...)",
        ) from error
    names = list(survey.flops)
    starts = cut_points([survey.flops[name] for name in names], num_parts)
    owners = {}
    for index, name in enumerate(names):
        owners[name] = sum(start <= index for start in starts) - 1
    return owners


class Survey(TorchFunctionMode):
    """Counts the forward FLOPs that each module's own parameters take part in.

    Args:
        net: Any module.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.flops: dict[str, float] = {}
        self._net = net
        self._meta: dict[str, torch.Tensor] = {}
        self._unit_of: dict[int, str] = {}
        first_names = {
            id(tensor): name
            for name, tensor in reversed(net.state_dict(keep_vars=True).items())
        }
        for name, tensor in net.state_dict(keep_vars=True).items():
            if first_names[id(tensor)] != name:
                continue
            self._meta[name] = tensor.detach().to("meta")
            self._unit_of[id(self._meta[name])] = name.rpartition(".")[0]
        self._counter = FlopCounterMode(display=False)

    def run(self, inputs: tuple[Any, ...]) -> None:
        """Run the forward on the meta device."""
        given = tree_map_only(torch.Tensor, lambda t: t.to("meta"), inputs)
        with torch.no_grad(), self._counter, self:
            torch.func.functional_call(self._net, self._meta, given, tie_weights=True)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Carry an operation out and put its FLOPs down to the first parameter's unit."""
        del types
        before = self._counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        units = [
            self._unit_of[id(leaf)]
            for leaf in tree_leaves((args, kwargs))
            if id(leaf) in self._unit_of
        ]
        if units:
            spent = self._counter.get_total_flops() - before
            self.flops[units[0]] = self.flops.get(units[0], 0) + spent
        return result
