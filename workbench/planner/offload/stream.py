"""What streaming layers through the device costs (S07): no torch here.

The closed forms below hold where one resource rules: weights hide in the
forward when the tokens of a pass are at least FLOP/s over link bytes/s (for weights of
two bytes). Where lanes, buffers and the host's optimizer wait for each other, the order
of events is replayed, as `offload.streaming` runs it.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.errors import PlanError
from workbench.planner.offload.link import Link
from workbench.planner.offload.order import Visit, visits

#: Buffers for weights, and units whose gradients may be on their way out.
NUM_BUFFERS = 2

#: Steps replayed; the last one is steady: it waits for the optimizer of one before.
_NUM_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class StreamedUnit:
    """One unit (usually a layer) whose weights live on the host.

    Args:
        weight_bytes: Copied in for each visit.
        gradient_bytes: Copied out once per step.
        input_bytes: Of its input, all micro-batches; kept off the device for the
            backward.
        forward_s: Compute of a forward visit, all micro-batches.
        backward_s: Compute of a backward visit: its forward again, and its backward.
        optimizer_s: Host time of its optimizer step.
    """

    weight_bytes: int
    gradient_bytes: int
    input_bytes: int
    forward_s: float
    backward_s: float
    optimizer_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StreamCost:
    """What streaming does to one steady step.

    Args:
        step_s: Of the whole step.
        stall_s: What of it the device does not compute.
        device_bytes: Most bytes of weights and gradients on the device; the same for
            any number of equal units.
        moved_in_bytes, moved_out_bytes: Per step.
    """

    step_s: float
    stall_s: float
    device_bytes: int
    moved_in_bytes: int
    moved_out_bytes: int


def stream_cost(
    units: Sequence[StreamedUnit],
    *,
    outward: Link,
    inward: Link,
    num_microbatches: int = 1,
    checkpoint_every: int = 1,
    update_early: bool = False,
) -> StreamCost:
    """Replay steps until they are steady, and return what one costs.

    Args:
        units: In order of the forward.
        outward: The link for kept inputs and gradients.
        inward: The link for weights and inputs that return.
        num_microbatches: Inputs of a unit that move separately.
        checkpoint_every: Units per kept input.
        update_early: The optimizer takes each unit as its gradients arrive; otherwise
            all after the backward, as clipping needs.

    A link so slow that all waits for it: two units, each copied once (the second stays
    for the backward, and so does the first).

    >>> unit = StreamedUnit(
    ...     weight_bytes=10**6, gradient_bytes=10**6, input_bytes=0,
    ...     forward_s=0.1, backward_s=0.3,
    ... )
    >>> slow = Link(bytes_per_s=1e6)
    >>> cost = stream_cost([unit] * 2, outward=slow, inward=slow)
    >>> round(cost.step_s, 2)  # in 1.0 + 1.0, back 0.3, out 1.0 + 1.0
    4.3
    """
    if not units:
        raise PlanError("a net of no units streams nothing")
    order = visits(len(units), checkpoint_every=checkpoint_every)
    clock = _Clock(units, outward, inward, num_microbatches, checkpoint_every)
    ends = [0.0]
    for _ in range(_NUM_STEPS):
        clock.step(order, update_early=update_early)
        ends.append(clock.now_s)
    step_s = ends[-1] - ends[-2]
    busy_s = sum(_seconds(units[visit.unit], visit) for visit in order)
    largest = max(unit.weight_bytes for unit in units)
    return StreamCost(
        step_s=step_s,
        stall_s=step_s - busy_s,
        device_bytes=NUM_BUFFERS * largest
        + (NUM_BUFFERS + 1) * max(unit.gradient_bytes for unit in units),
        moved_in_bytes=clock.moved_in // _NUM_STEPS,
        moved_out_bytes=clock.moved_out // _NUM_STEPS,
    )


def _seconds(unit: StreamedUnit, visit: Visit) -> float:
    return unit.backward_s if visit.doing == "backward" else unit.forward_s


class _Clock:
    """The clocks of the device, both lanes and the host's optimizer."""

    def __init__(
        self,
        units: Sequence[StreamedUnit],
        outward: Link,
        inward: Link,
        num_microbatches: int,
        checkpoint_every: int,
    ) -> None:
        self._units = units
        self._outward, self._inward = outward, inward
        self._num_parts = num_microbatches
        self._every = checkpoint_every
        self.now_s = self._in_s = self._out_s = self._host_s = 0.0
        self.moved_in = self.moved_out = 0
        self._updated_s = [0.0] * len(units)
        self._resident: OrderedDict[int, float] = OrderedDict()

    def step(self, order: Sequence[Visit], *, update_early: bool) -> None:
        """Let one step pass."""
        self._leaving: deque[float] = deque()
        self._kept: dict[int, float] = {}
        self._back: dict[int, float] = {}
        for index, visit in enumerate(order):
            coming = [later.unit for later in order[index:] if later.unit != visit.unit]
            self._use(visit.unit, coming[0] if coming else None)
            if visit.doing == "forward":
                self._keep(visit.unit)
            else:
                self._bring_back(visit.unit, coming[0] if coming else None)
            self.now_s += _seconds(self._units[visit.unit], visit)
            if visit.doing == "backward":
                self._send(visit.unit, update_early=update_early)
        self._resident.clear()
        self.now_s = max(self.now_s, *self._leaving)
        if not update_early:
            for unit in range(len(self._units)):
                self._update(unit, self.now_s)

    def _use(self, unit: int, following: int | None) -> None:
        self._fetch(unit)
        self._resident.move_to_end(unit)
        if following is not None:
            self._fetch(following)
            self._resident.move_to_end(unit)
        self.now_s = max(self.now_s, self._resident[unit])

    def _fetch(self, unit: int) -> None:
        if unit in self._resident:
            return
        if len(self._resident) == NUM_BUFFERS:
            self._resident.popitem(last=False)
        self._in_s = max(self._in_s, self.now_s, self._updated_s[unit])
        self._in_s += self._inward.seconds(self._units[unit].weight_bytes)
        self.moved_in += self._units[unit].weight_bytes
        self._resident[unit] = self._in_s

    def _keep(self, unit: int) -> None:
        """Send a group's input away, unless that group goes back next."""
        last_group = (len(self._units) - 1) // self._every
        if unit % self._every == 0 and unit // self._every != last_group:
            self._out(self._units[unit].input_bytes, self._num_parts)
            self._kept[unit] = self._out_s

    def _bring_back(self, unit: int, following: int | None) -> None:
        for group in (unit, following):
            if group in self._kept:
                left_s = self._kept.pop(group)
                self._in_s = max(self._in_s, self.now_s, left_s)
                num_bytes = self._units[group].input_bytes
                self._in_s += _parts_s(self._inward, num_bytes, self._num_parts)
                self.moved_in += num_bytes
                self._back[group] = self._in_s
        self.now_s = max(self.now_s, self._back.pop(unit, 0.0))

    def _send(self, unit: int, *, update_early: bool) -> None:
        while len(self._leaving) >= NUM_BUFFERS:
            self.now_s = max(self.now_s, self._leaving.popleft())
        self._out(self._units[unit].gradient_bytes, 1)
        self._leaving.append(self._out_s)
        if update_early:
            self._update(unit, self._out_s)

    def _out(self, num_bytes: int, num_parts: int) -> None:
        self._out_s = max(self._out_s, self.now_s)
        self._out_s += _parts_s(self._outward, num_bytes, num_parts)
        self.moved_out += num_bytes

    def _update(self, unit: int, ready_s: float) -> None:
        self._host_s = max(self._host_s, ready_s) + self._units[unit].optimizer_s
        self._updated_s[unit] = self._host_s


def _parts_s(link: Link, num_bytes: int, num_parts: int) -> float:
    return num_parts * link.latency_s + num_bytes / link.bytes_per_s


def least_tokens(*, flops_per_s: float, link_bytes_per_s: float) -> float:
    """Return the tokens of a pass from which on the forward hides its weights.

    Weights of two bytes: 2 P T / F >= 2 P / B, so T >= F / B; the
    backward needs half of that.

    >>> round(least_tokens(flops_per_s=400e12, link_bytes_per_s=55e9))
    7273
    """
    return flops_per_s / link_bytes_per_s
