"""Units of a net whose parameters, gradients and optimizer states live off the device."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call

from workbench.errors import OffloadError
from workbench.offload.lanes import Transfer, Worker
from workbench.offload.optimizer_states import (
    OptimizerOf,
    make_in,
    state_bytes,
    step_in,
)
from workbench.offload.tiers import Flat, Tier, flat_bytes


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A part of a net that is on the device as a whole or not at all.

    Args:
        name: Prefix of its parameters' names, e.g. "layers.3"; may be empty.
        module: Takes one tensor and returns one; may be on the meta device.
        fill: Gives the module its memory and values; None where it has them.
    """

    name: str
    module: nn.Module
    fill: Callable[[nn.Module], None] | None = None


def full_name(unit: str, name: str) -> str:
    """Return a parameter's name in the whole net; a unit may have the empty name."""
    return f"{unit}.{name}" if unit else name


class HostUnit:
    """What the host keeps of one unit, and its optimizer.

    Args:
        unit: Emptied of its parameters here: their values move to the host.
        shared: Host parameters of earlier units that this one uses as well, by the
            names they have here.
        weights: Tier of parameters.
        gradients: Tier of gradients.
        states: Tier of optimizer states.
        mine: Says of the unit's own parameters which this rank updates.
        optimizer_of: Makes the optimizer of this unit's own parameters.
        work_dtype: Of the copy that the device gets; None for the parameters' own.
    """

    def __init__(
        self,
        unit: Unit,
        *,
        shared: Mapping[str, nn.Parameter],
        weights: Tier,
        gradients: Tier,
        states: Tier,
        mine: Callable[[Mapping[str, torch.Tensor]], Collection[str]],
        optimizer_of: OptimizerOf,
        work_dtype: torch.dtype | None,
    ) -> None:
        if unit.fill is not None:
            unit.fill(unit.module)
        self.name = unit.name
        self.module = unit.module
        found = dict(unit.module.named_parameters())
        own = {name: p for name, p in found.items() if name not in shared}
        flat = Flat(weights, own.values())
        self.own = {
            name: _filled(view, parameter)
            for (name, parameter), view in zip(own.items(), flat.views, strict=True)
        }
        self.parameters = {n: self.own[n] if n in own else shared[n] for n in found}
        self.shared = frozenset(shared)
        taken = mine(own)
        updated = {name: p for name, p in own.items() if name in taken}
        views = Flat(gradients, updated.values()).views
        #: Of the parameters that this rank updates; so is the optimizer.
        self.gradients = dict(zip(updated, views, strict=True))
        self.unused: frozenset[str] = frozenset()
        self._work = _WorkCopy(self.own, weights, work_dtype)
        self._states = states
        self.optimizer = (
            make_in(states, optimizer_of, [self.own[name] for name in updated])
            if updated
            else None
        )
        self.updated: Transfer | None = None
        _to_meta(unit.module)

    def work(self, units: Sequence["HostUnit"]) -> list[torch.Tensor]:
        """Return what the device gets, in order of `parameters`."""
        by_owner = {
            id(parameter): unit._work.tensors[name]
            for unit in units
            for name, parameter in unit.own.items()
        }
        return [by_owner[id(parameter)] for parameter in self.parameters.values()]

    def full(self, name: str) -> str:
        """Return the name that a parameter of this unit has in the whole net."""
        return full_name(self.name, name)

    def call(self, weights: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """Run this unit with weights of the device, in order of `parameters`."""
        by_name = dict(zip(self.parameters, weights, strict=True))
        result: torch.Tensor = functional_call(self.module, by_name, (x,))
        return result

    def update(
        self,
        worker: Worker,
        *,
        after: Sequence[Transfer],
        scale: float,
        learning_rate: float | None,
    ) -> None:
        """Begin the optimizer's step on a worker, once the gradients are there."""
        self.updated = worker.run(lambda: self._step(scale, learning_rate), after=after)

    def _step(self, scale: float, learning_rate: float | None) -> None:
        if self.optimizer is None:
            return
        for name, gradient in self.gradients.items():
            self.own[name].grad = None if name in self.unused else gradient
        present = [p.grad for p in self.own.values() if p.grad is not None]
        if scale != 1.0 and present:
            torch._foreach_mul_(present, scale)
        if learning_rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
        step_in(self._states, self.optimizer)
        self._work.refresh(self.gradients)


class _WorkCopy:
    """The parameters as the device gets them: themselves, or rounded to a dtype."""

    def __init__(
        self, own: Mapping[str, nn.Parameter], tier: Tier, dtype: torch.dtype | None
    ) -> None:
        self._own = own
        self.tensors = {name: parameter.data for name, parameter in own.items()}
        if dtype is not None:
            like = [p.data.to("meta", dtype) for p in own.values()]
            self.tensors = dict(zip(own, Flat(tier, like).views, strict=True))
        self.refresh(own)

    def refresh(self, names: Iterable[str]) -> None:
        """Round again what has changed."""
        for name in names:
            if self.tensors[name].dtype != self._own[name].dtype:
                self.tensors[name].copy_(self._own[name].data)


def _filled(view: torch.Tensor, parameter: nn.Parameter) -> nn.Parameter:
    view.copy_(parameter.data)
    return nn.Parameter(view, requires_grad=parameter.requires_grad)


def _to_meta(module: nn.Module) -> None:
    """Take a module's parameters away; ties between them and buffers remain."""
    empty: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if id(parameter) not in empty:
                empty[id(parameter)] = nn.Parameter(parameter.data.to("meta"))
            setattr(part, name, empty[id(parameter)])


def require_room(
    units: Sequence[Unit],
    *,
    tied: Mapping[str, str],
    weights: Tier,
    states: Tier,
    optimizer_of: OptimizerOf,
    work_dtype: torch.dtype | None,
) -> None:
    """Refuse, before anything is made, what the tiers cannot hold.

    Raises:
        OffloadError: A tier is too small, with the bytes needed and at hand.
    """
    own = [
        parameter
        for unit in units
        for name, parameter in unit.module.named_parameters()
        if full_name(unit.name, name) not in tied
    ]
    weight_bytes = 2 * flat_bytes(own)
    if work_dtype is not None:
        weight_bytes += flat_bytes(p.data.to("meta", work_dtype) for p in own)
    state_total = state_bytes(optimizer_of, own)
    if states is weights:
        weights.require(weight_bytes + state_total)
    else:
        weights.require(weight_bytes)
        states.require(state_total)


def check_tied(units: Sequence[Unit], tied: Mapping[str, str]) -> None:
    """Refuse parameters that two units share without saying so, or unknown names.

    Raises:
        OffloadError: With the names.
    """
    seen: dict[int, str] = {}
    names: set[str] = set()
    for unit in units:
        for name, parameter in unit.module.named_parameters():
            whole = full_name(unit.name, name)
            names.add(whole)
            owner = seen.setdefault(id(parameter), whole)
            if owner != whole and whole not in tied:
                raise OffloadError(
                    f"{whole} and {owner} are one parameter in two units",
                    hint=f"say so: tied={{{whole!r}: {owner!r}}}",
                )
    for name in (*tied, *tied.values()):
        if name not in names:
            raise OffloadError(f"tied names {name!r}, which no unit has")
