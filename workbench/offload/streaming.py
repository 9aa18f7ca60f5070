"""Streaming: the host owns the net, the device sees two layers of it at a time (S07).

The mechanism of Horizon-LM (arXiv 2602.04816): a unit is copied in while the one before
it computes, the backward computes each unit again from its kept input, gradients leave
as soon as they are whole, and the optimizer runs on the host beside all of this. What
the device holds does not depend on the number of units. Micro-batches pass through a
unit one after the other while it is there, so that each weight comes in once.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from workbench.errors import OffloadError
from workbench.offload.host_units import (
    HostUnit,
    Unit,
    check_tied,
    full_name,
    require_room,
)
from workbench.offload.lanes import Throttle, Transfer, Worker, lanes_between
from workbench.offload.optimizer_states import OptimizerOf
from workbench.offload.sharing import Owners, Sharing
from workbench.offload.streamed_step import Loss, StreamedStep
from workbench.offload.tiers import DeviceTier, HostTier, Pool, Tier, flat_bytes
from workbench.offload.window import NUM_BUFFERS, Window
from workbench.planner.offload.order import visits
from workbench.units import bytes_text

Moment = Literal["copy issued", "compute begins", "compute ends"]


@dataclass(frozen=True)
class StreamEvent:
    """One moment of a streamed step, by the host's clock."""

    moment: Moment
    unit: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """How a net is streamed.

    Args:
        weights: Tier of parameters and, unless it is shared, of gradients.
        states: Tier of optimizer states.
        activations: Tier of the inputs kept for the backward.
        optimizer_of: Makes a unit's optimizer, as it would for the whole net.
        checkpoint_every: Units per kept input; more of them move fewer activations
            and compute one forward more.
        recompute: Whether the backward computes each unit again. Without, the device
            keeps the units' activations (not their weights): faster, and no longer
            independent of depth.
        work_dtype: What the device computes in; None for the parameters' own dtype.
        tied: Names of parameters that are another unit's, to the owners' names; owners
            come first.
        throttle: A link to behave like (CPU-only machines).
        reduce: Sums a unit's gradients over ranks, in place, before they leave.
        sharing: The ranks that see the same weights tier and deal its updates out.
        record: Takes the moments of each step.
    """

    weights: Tier
    states: Tier
    activations: Tier
    optimizer_of: OptimizerOf
    checkpoint_every: int = 1
    recompute: bool = True
    work_dtype: torch.dtype | None = None
    tied: Mapping[str, str] = field(default_factory=dict)
    throttle: Throttle | None = None
    reduce: Callable[[list[torch.Tensor]], None] | None = None
    sharing: Sharing | None = None
    record: Callable[[StreamEvent], None] = lambda _: None

    def __post_init__(self) -> None:
        if self.checkpoint_every > 1 and not self.recompute:
            raise OffloadError(
                f"checkpoint_every={self.checkpoint_every} without recompute keeps "
                "every activation all the same",
                hint="leave one of the two out",
            )


class Streamed:
    """A net that trains from the host.

    Args:
        units: Its parts, in order; emptied of their parameters here, one by one.
        device: Where it computes.
        streaming: How.

    Raises:
        OffloadError: A tier or the device's budget is too small; nothing has been made.
    """

    def __init__(
        self, units: Sequence[Unit], device: torch.device, streaming: Streaming
    ) -> None:
        self._how = streaming
        self._device = DeviceTier(device)
        check_tied(units, streaming.tied)
        _require_window(units, self._device, streaming.work_dtype)
        require_room(
            units,
            tied=streaming.tied,
            weights=streaming.weights,
            states=streaming.states,
            optimizer_of=streaming.optimizer_of,
            work_dtype=streaming.work_dtype,
        )
        pinned = isinstance(streaming.weights, HostTier) and streaming.weights.pinned
        self._lanes = lanes_between(device, pinned=pinned, throttle=streaming.throttle)
        self._optimizer = Worker("optimizer")
        sharing = streaming.sharing
        self._owners = Owners(sharing.num_ranks if sharing else 1)
        self.units: list[HostUnit] = []
        for unit in units:
            self.units.append(self._to_host(unit))
        self.window = Window(
            self._device,
            [unit.work(self.units) for unit in self.units],
            self._lanes.inward,
            before=self._updates_of,
            noted=lambda unit: self._note("copy issued", unit),
        )
        self._pool = Pool(streaming.activations)
        self._meet()

    def _meet(self) -> None:
        """Return once all ranks that share the weights have made their updates."""
        if self._how.sharing is not None:
            self.settle()
            self._how.sharing.wait()

    def _to_host(self, unit: Unit) -> HostUnit:
        owners = {
            earlier.full(name): parameter
            for earlier in self.units
            for name, parameter in earlier.own.items()
        }
        tied = self._how.tied
        shared = {
            name: owners[tied[whole]]
            for name, _ in unit.module.named_parameters()
            if (whole := full_name(unit.name, name)) in tied
        }
        return HostUnit(
            unit,
            shared=shared,
            weights=self._how.weights,
            gradients=self._how.activations if self._how.sharing else self._how.weights,
            states=self._how.states,
            mine=self._mine,
            optimizer_of=self._how.optimizer_of,
            work_dtype=self._how.work_dtype,
        )

    def _mine(self, own: Mapping[str, torch.Tensor]) -> Collection[str]:
        """Return which of a unit's parameters this rank updates."""
        sharing = self._how.sharing
        if sharing is None:
            return own.keys()
        owners = self._owners.deal(own)
        return {name for name, rank in owners.items() if rank == sharing.rank}

    def _updates_of(self, unit: int) -> list[Transfer]:
        """Return the optimizer steps that a unit's parameters wait for."""
        wanted = {id(p) for p in self.units[unit].parameters.values()}
        return [
            owner.updated
            for owner in self.units
            if owner.updated is not None
            and any(id(p) in wanted for p in owner.own.values())
        ]

    def _note(self, moment: Moment, unit: int) -> None:
        self._how.record(StreamEvent(moment, unit, time.perf_counter()))

    # A step -------------------------------------------------------------------------

    def forward_backward(
        self,
        inputs: Sequence[torch.Tensor],
        loss: Loss,
        *,
        update: bool = False,
        learning_rate: float | None = None,
    ) -> list[torch.Tensor]:
        """Run all micro-batches through the net and back; gradients end on the host.

        Args:
            inputs: One per micro-batch, on the device.
            loss: Of one micro-batch; its gradients add up.
            update: Begin each unit's optimizer step as soon as its gradients have
                arrived, beside the rest of the backward. Without, `update` does so.
            learning_rate: Of that step; None for the optimizers' own.

        Returns:
            The losses, detached.
        """
        self._meet()
        order = visits(len(self.units), checkpoint_every=self._how.checkpoint_every)
        step = StreamedStep(
            self.units,
            inputs,
            loss,
            checkpoint_every=self._how.checkpoint_every,
            lanes=self._lanes,
            pool=self._pool,
            device=self._device.device,
            reduce=self._how.reduce,
            keep=None if self._how.recompute else self.window.kept_graph,
        )
        for index, visit in enumerate(order):
            coming = [later for later in order[index:] if later.unit != visit.unit]
            following = coming[0].unit if coming else None
            weights = self.window.use(visit.unit, following=following)
            self._note("compute begins", visit.unit)
            leaving = step.run(visit, weights, following=following)
            self._note("compute ends", visit.unit)
            if update and visit.doing == "backward":
                self.units[visit.unit].update(
                    self._optimizer,
                    after=leaving,
                    scale=1.0,
                    learning_rate=learning_rate,
                )
        self.window.drop()
        step.finish()
        return step.losses

    def update(self, *, scale: float = 1.0, learning_rate: float | None = None) -> None:
        """Begin the optimizer's step of every unit; the next copies in wait for it.

        Args:
            scale: Gradients are multiplied by it first, e.g. to clip them.
            learning_rate: Of this step; None for the optimizers' own.
        """
        for unit in self.units:
            unit.update(
                self._optimizer, after=[], scale=scale, learning_rate=learning_rate
            )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the net's output, without gradients."""
        self._meet()
        x = inputs
        for index in range(len(self.units)):
            following = index + 1 if index + 1 < len(self.units) else None
            weights = self.window.use(index, following=following)
            with torch.no_grad():
                x = self.units[index].call(weights, x)
        self.window.drop()
        return x

    # Beside the step ----------------------------------------------------------------

    def settle(self) -> None:
        """Return once every optimizer step that was begun is done; raises theirs."""
        for unit in self.units:
            if unit.updated is not None:
                unit.updated.finish()

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return the host's gradients of the last backward by name, where there are any.

        Where weights are shared, those of the parameters that this rank updates.
        """
        return {
            unit.full(name): gradient
            for unit in self.units
            for name, gradient in unit.gradients.items()
            if name not in unit.unused
        }

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the host's parameters by name, after every step that was begun."""
        self.settle()
        self._meet()
        return {
            unit.full(name): parameter
            for unit in self.units
            for name, parameter in unit.own.items()
        }

    def close(self) -> None:
        """Finish what is under way and end the threads."""
        self._optimizer.close()
        self._lanes.close()


def _require_window(
    units: Sequence[Unit], device: Tier, work_dtype: torch.dtype | None
) -> None:
    """Refuse a budget that cannot hold two units and the gradients of one."""
    largest = max(
        flat_bytes(
            p.data.to("meta", work_dtype or p.dtype) for p in unit.module.parameters()
        )
        for unit in units
    )
    try:
        device.require((NUM_BUFFERS + 1) * largest)
    except OffloadError as error:
        raise OffloadError(
            f"streaming needs two buffers of the largest unit's {bytes_text(largest)} "
            f"and one for its gradients: {error.message}",
            hint="cut the net into smaller units, or raise the budget",
        ) from None
