"""One step of a streamed net: what it keeps between the visits of its units."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.offload.host_units import HostUnit
from workbench.offload.lanes import Lanes, Transfer
from workbench.offload.tiers import Pool
from workbench.offload.window import NUM_BUFFERS
from workbench.planner.offload.order import Visit

#: Takes the output of the last unit and the number of its micro-batch, gives a scalar.
Loss = Callable[[torch.Tensor, int], torch.Tensor]


class StreamedStep:
    """The flow of one step's micro-batches through the units and back.

    Args:
        units: All of the net.
        inputs: One per micro-batch, on the device.
        loss: Of one micro-batch.
        checkpoint_every: Units per kept input.
        lanes: To and from the tier of `pool` and the gradients.
        pool: Where kept inputs lie.
        device: Where the units compute.
        reduce: Sums a unit's gradients over ranks, in place.
        keep: Makes the hooks that a unit's forward runs under if its graph is kept for
            the backward; None to compute each unit again.
    """

    def __init__(
        self,
        units: Sequence[HostUnit],
        inputs: Sequence[torch.Tensor],
        loss: Loss,
        *,
        checkpoint_every: int,
        lanes: Lanes,
        pool: Pool,
        device: torch.device,
        reduce: Callable[[list[torch.Tensor]], None] | None,
        keep: Callable[[int], AbstractContextManager[Any]] | None,
    ) -> None:
        self._units = units
        self._loss = loss
        self._every = checkpoint_every
        self._lanes = lanes
        self._pool = pool
        self._reduce = reduce
        self._keep_graph = keep
        self._graphs: dict[int, _Graph] = {}
        self._last = len(units) - 1
        self._flow = list(inputs)
        #: Inputs on the device by unit, for the group that is going back.
        self._inputs: dict[int, list[torch.Tensor]] = {}
        self._kept: dict[int, list[_Kept]] = {}
        self._random = _Randomness(pool, device)
        self._back: list[torch.Tensor | None] = [None] * len(inputs)
        self._leaving: deque[Transfer] = deque()
        #: Gradients that wait for their parameter's owner, per micro-batch.
        self._late: dict[int, list[_Kept]] = {}
        self.losses: list[torch.Tensor] = []

    def run(
        self, visit: Visit, weights: list[torch.Tensor], *, following: int | None
    ) -> list[Transfer]:
        """Compute one visit.

        Args:
            visit: Which unit, and what to do.
            weights: The unit's, on the device.
            following: The unit after it, whose kept inputs can already come back.

        Returns:
            The transfers of its gradients to the host.
        """
        if visit.doing == "forward":
            if self._keep_graph is not None:
                self._forward_with_graph(visit.unit, weights)
            else:
                self._forward(visit.unit, weights)
            return []
        for group in (visit.unit, following):
            if group is not None:
                self._bring_back(group)
        if visit.doing == "recompute":
            inputs = self._inputs_of(visit.unit)
            self._inputs[visit.unit + 1] = self._compute(visit.unit, weights, inputs)
            return []
        return self._backward(visit.unit, weights)

    def finish(self) -> None:
        """Return once every gradient is on the host."""
        while self._leaving:
            self._leaving.popleft().finish()

    # Forward ------------------------------------------------------------------------

    def _forward(self, unit: int, weights: list[torch.Tensor]) -> None:
        if unit // self._every == self._last // self._every:
            self._inputs[unit] = self._flow  # goes back next: not worth a round trip
        elif unit % self._every == 0:
            self._kept[unit] = [self._keep(x) for x in self._flow]
        self._flow = self._compute(unit, weights, self._flow)

    def _forward_with_graph(self, unit: int, weights: list[torch.Tensor]) -> None:
        graph = _Graph(self._leaves(unit, weights))
        for number, x in enumerate(self._flow):
            graph.ends.append(self._build(unit, graph.leaves, x, number))
        self._flow = [y.detach() for _, y in graph.ends]
        self._graphs[unit] = graph

    def _leaves(
        self, unit: int, weights: list[torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        parameters = self._units[unit].parameters
        return {
            name: weight.detach().requires_grad_(parameter.requires_grad)
            for (name, parameter), weight in zip(
                parameters.items(), weights, strict=True
            )
        }

    def _build(
        self, unit: int, leaves: dict[str, torch.Tensor], x: torch.Tensor, number: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute a unit with its graph; return the graph's input and output."""
        x = x.detach().requires_grad_(x.is_floating_point())
        keep = self._keep_graph(unit) if self._keep_graph else nullcontext()
        with torch.enable_grad(), self._random.of(unit, number), keep:
            y = self._units[unit].call(list(leaves.values()), x)
            if unit == self._last:
                y = self._loss(y, number)
                self.losses.append(y.detach())
        return x, y

    def _compute(
        self, unit: int, weights: list[torch.Tensor], inputs: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        outputs = []
        for number, x in enumerate(inputs):
            with torch.no_grad(), self._random.of(unit, number):
                outputs.append(self._units[unit].call(weights, x))
        return outputs

    def _keep(self, x: torch.Tensor) -> "_Kept":
        """Send a tensor away, strides as they are where it has no holes."""
        stride = torch.empty_like(x, device="meta").stride()
        buffer = self._pool.take(x.nbytes)
        host = buffer.view(x.dtype).as_strided(x.shape, stride)
        return _Kept(buffer, host, self._lanes.outward.copy([(host, x)]))

    # Backward -----------------------------------------------------------------------

    def _bring_back(self, unit: int) -> None:
        """Begin to fetch the inputs of a group that starts with this unit."""
        for kept in self._kept.get(unit, ()):
            self._fetch(kept)

    def _fetch(self, kept: "_Kept") -> torch.Tensor:
        if kept.device is None:
            kept.device = torch.empty_like(kept.host, device=self._random.device)
            kept.arriving = self._lanes.inward.copy(
                [(kept.device, kept.host)], after=[kept.leaving]
            )
        return kept.device

    def _arrived(self, kept: "_Kept") -> torch.Tensor:
        device = self._fetch(kept)
        assert kept.arriving is not None
        kept.arriving.wait()
        kept.arriving.finish()  # the buffer may be written again from here on
        self._pool.give(kept.buffer)
        return device

    def _inputs_of(self, unit: int) -> list[torch.Tensor]:
        if unit in self._kept:
            self._inputs[unit] = [self._arrived(k) for k in self._kept.pop(unit)]
        if unit == self._last:
            return self._flow
        return self._inputs[unit]

    def _backward(self, unit: int, weights: list[torch.Tensor]) -> list[Transfer]:
        host = self._units[unit]
        totals: dict[str, torch.Tensor] = {}
        graph = self._graphs.pop(unit, None) or _Graph(self._leaves(unit, weights))
        leaves, inputs = graph.leaves, [] if graph.ends else self._inputs_of(unit)
        self._inputs.pop(unit, None)
        for number in range(len(self._back)):
            x, y = (
                graph.ends[number]
                if graph.ends
                else self._build(unit, leaves, inputs[number], number)
            )
            if y.requires_grad:
                torch.autograd.backward(y, self._back[number])
            self._back[number] = x.grad
            self._settle_tied(host, leaves, totals, number)
        for name in host.own:
            if leaves[name].grad is not None:
                totals[name] = leaves[name].grad  # type: ignore[assignment]
        return self._send(host, totals)

    def _settle_tied(
        self,
        host: HostUnit,
        leaves: dict[str, torch.Tensor],
        totals: dict[str, torch.Tensor],
        number: int,
    ) -> None:
        """Bring the gradients of tied parameters together as autograd would.

        Within one micro-batch the last user's comes first and the owner's is added to
        it; only then do micro-batches add up. Any other order rounds differently.
        """
        for name, parameter in host.parameters.items():
            leaf, late = leaves[name], self._late.get(id(parameter))
            if name in host.shared and leaf.grad is not None:
                self._late.setdefault(id(parameter), []).append(self._keep(leaf.grad))
                leaf.grad = None
            elif name not in host.shared and late is not None:
                gradient = self._arrived(late[number])
                if leaf.grad is not None:
                    gradient = gradient.add_(leaf.grad)
                    leaf.grad = None
                before = totals.get(name)
                totals[name] = gradient if before is None else before.add_(gradient)

    def _send(self, host: HostUnit, totals: dict[str, torch.Tensor]) -> list[Transfer]:
        """Begin to copy a unit's gradients outward; two units' may be under way."""
        host.unused = frozenset(host.own) - frozenset(totals)
        if not totals:
            return []
        if self._reduce is not None:
            self._reduce(list(totals.values()))
        while len(self._leaving) >= NUM_BUFFERS:
            self._leaving.popleft().finish()
        pairs = [
            (target, totals[name])
            for name, target in host.gradients.items()
            if name in totals
        ]
        self._leaving.append(self._lanes.outward.copy(pairs))
        return [self._leaving[-1]]


@dataclass(eq=False)
class _Graph:
    """A unit's weights as autograd knows them, and per micro-batch input and output."""

    leaves: dict[str, torch.Tensor]
    ends: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)


@dataclass(eq=False)
class _Kept:
    """A tensor that went to the host and will come back."""

    buffer: torch.Tensor
    host: torch.Tensor
    leaving: Transfer
    device: torch.Tensor | None = None
    arriving: Transfer | None = None


class _Randomness:
    """Lets a unit draw the same random numbers whenever it is computed again."""

    def __init__(self, pool: Pool, device: torch.device) -> None:
        self.device = device
        self._pool = pool
        self._seen: set[tuple[int, int]] = set()
        self._before: dict[tuple[int, int], list[torch.Tensor]] = {}

    @contextmanager
    def of(self, unit: int, number: int) -> Iterator[None]:
        """Surround one computing of a unit for a micro-batch."""
        key = (unit, number)
        if key not in self._seen:
            self._seen.add(key)
            before = self._states()
            yield
            if not all(map(torch.equal, before, self._states())):
                self._before[key] = [self._pool.tier.place(s) for s in before]
        elif key in self._before:
            now = self._states()
            self._set(self._before[key])
            yield
            self._set(now)
        else:
            yield

    def _states(self) -> list[torch.Tensor]:
        states = [torch.get_rng_state()]
        if self.device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self.device))
        return states

    def _set(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self.device)
