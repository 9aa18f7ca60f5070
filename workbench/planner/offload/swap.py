"""What swapping saved activations costs, and which to swap (S01): no torch here.

A prefetch window over tensors of unequal size has no closed form, so the order of events
is replayed, with the same decisions as the hooks take when they run.
"""

import itertools
from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass

from workbench.errors import PlanError
from workbench.planner.offload.link import Link
from workbench.units import bytes_text


@dataclass(frozen=True, kw_only=True)
class SavedTensor:
    """One tensor that the forward keeps for the backward, in order of the forward.

    Args:
        num_bytes: Its size.
        forward_s: Compute from the previous one's saving (or the start) to its own.
        backward_s: Compute of the backward from its use to the next earlier one's use
            (or the end).
    """

    num_bytes: int
    forward_s: float = 0.0
    backward_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SwapSetting:
    """Which saved tensors leave the device, and when they come back.

    Args:
        num_tensors: How many leave, counted from the start of the forward (those are
            used last, so they wait longest); -1 for all, 0 for none.
        lower: When a tensor is used in the backward, the transfers of the `lower`
            before it have begun. In saved tensors; counts those that stayed as well.
        upper: As `lower`, but only while `window_bytes` has room for them.
        min_bytes: Smaller tensors stay.
        min_distance: Tensors whose use in the backward is nearer than that many saved
            tensors after their saving stay.
        window_bytes: Room for tensors fetched beyond `lower`.
    """

    num_tensors: int = -1
    lower: int = 1
    upper: int = 1
    min_bytes: int = 64 * 1024
    min_distance: int = 0
    window_bytes: int = 0

    def __post_init__(self) -> None:
        if self.num_tensors < -1 or self.lower < 0 or self.upper < self.lower:
            raise PlanError(
                f"num_tensors={self.num_tensors}, lower={self.lower}, "
                f"upper={self.upper} is no swap",
                hint="num_tensors >= -1 and 0 <= lower <= upper",
            )


@dataclass(frozen=True, kw_only=True)
class SwapCost:
    """What a swap setting does to one step.

    Args:
        kept_bytes: Saved tensors that never leave.
        peak_bytes: Most bytes of saved tensors on the device at once.
        moved_bytes: Per direction.
        stall_s: Time that computing waits for transfers.
    """

    kept_bytes: int
    peak_bytes: int
    moved_bytes: int
    stall_s: float


#: Transfers outward that may be unfinished while computing goes on.
MAX_LEAVING = 2


def chosen(tensors: Sequence[SavedTensor], setting: SwapSetting) -> tuple[bool, ...]:
    """Return for each saved tensor whether it leaves the device.

    The reuse distance of tensor i of n is 2 (n - i) - 1 saved tensors: the backward
    uses them in reverse.
    """
    leaving: list[bool] = []
    for index, tensor in enumerate(tensors):
        leaving.append(
            leaves(
                setting,
                num_bytes=tensor.num_bytes,
                num_left=sum(leaving),
                distance=2 * (len(tensors) - index) - 1,
            )
        )
    return tuple(leaving)


def leaves(
    setting: SwapSetting, *, num_bytes: int, num_left: int, distance: int | None
) -> bool:
    """Return whether one saved tensor leaves the device.

    Args:
        setting: What was asked for.
        num_bytes: Its size.
        num_left: How many have left before it in this forward.
        distance: Its reuse distance, or None in a first forward, which knows no end.
    """
    return (
        num_bytes >= setting.min_bytes
        and (distance is None or distance >= setting.min_distance)
        and (setting.num_tensors == -1 or num_left < setting.num_tensors)
    )


def swap_cost(
    tensors: Sequence[SavedTensor],
    setting: SwapSetting,
    *,
    outward: Link,
    inward: Link,
) -> SwapCost:
    """Replay one forward and backward with a swap setting.

    The stall that S01's rule gives for one tensor, max(0, bytes / rate - compute inside
    the window), is what this gives where transfers do not queue behind each other.

    >>> layer = SavedTensor(num_bytes=10**6, forward_s=0.1, backward_s=0.2)
    >>> cost = swap_cost(
    ...     [layer] * 8,
    ...     SwapSetting(lower=1),
    ...     outward=Link(bytes_per_s=20e6),
    ...     inward=Link(bytes_per_s=4e6),
    ... )
    >>> cost.moved_bytes, round(cost.stall_s, 2)  # 0.05 + 0.25, then 7 x 0.05
    (8000000, 0.65)
    """
    leaving = chosen(tensors, setting)
    forward = _replay_forward(tensors, leaving, outward)
    backward = _replay_backward(tensors, leaving, setting, inward, forward)
    moved = sum(t.num_bytes for t, out in zip(tensors, leaving, strict=True) if out)
    total = sum(t.num_bytes for t in tensors)
    return SwapCost(
        kept_bytes=total - moved,
        peak_bytes=max(forward.peak_bytes, backward.peak_bytes),
        moved_bytes=moved,
        stall_s=forward.stall_s + backward.stall_s,
    )


@dataclass(frozen=True, kw_only=True)
class _Replay:
    peak_bytes: int
    stall_s: float
    last_arrival_s: float


def _replay_forward(
    tensors: Sequence[SavedTensor], leaving: Sequence[bool], outward: Link
) -> _Replay:
    """Follow the clock through the forward: transfers out, at most two behind."""
    now_s = stall_s = link_free_s = 0.0
    on_device = peak = 0
    under_way: deque[tuple[float, int]] = deque()
    for tensor, leaves in zip(tensors, leaving, strict=True):
        now_s += tensor.forward_s
        on_device += tensor.num_bytes
        if leaves:
            link_free_s = max(now_s, link_free_s) + outward.seconds(tensor.num_bytes)
            under_way.append((link_free_s, tensor.num_bytes))
        while under_way and under_way[0][0] <= now_s:
            on_device -= under_way.popleft()[1]
        peak = max(peak, on_device)
        while len(under_way) > MAX_LEAVING:
            done_s, num_bytes = under_way.popleft()
            stall_s += max(0.0, done_s - now_s)
            now_s = max(now_s, done_s)
            on_device -= num_bytes
    return _Replay(
        peak_bytes=peak, stall_s=stall_s, last_arrival_s=max(0.0, link_free_s - now_s)
    )


def _replay_backward(
    tensors: Sequence[SavedTensor],
    leaving: Sequence[bool],
    setting: SwapSetting,
    inward: Link,
    forward: _Replay,
) -> _Replay:
    """Follow the clock through the backward: transfers in, ahead of their use."""
    now_s = stall_s = 0.0
    # What left last may still be leaving; it can come back only after that.
    link_free_s = forward.last_arrival_s
    on_device = peak = sum(
        tensor.num_bytes
        for tensor, leaves in zip(tensors, leaving, strict=True)
        if not leaves
    )
    arrives_s: dict[int, float] = {}
    for index in range(len(tensors) - 1, -1, -1):
        for wanted in fetches(index, tensors, leaving, arrives_s, setting):
            num_bytes = tensors[wanted].num_bytes
            link_free_s = max(now_s, link_free_s) + inward.seconds(num_bytes)
            arrives_s[wanted] = link_free_s
            on_device += num_bytes
        peak = max(peak, on_device)
        if index in arrives_s:
            stall_s += max(0.0, arrives_s[index] - now_s)
            now_s = max(now_s, arrives_s[index])
        now_s += tensors[index].backward_s
        on_device -= tensors[index].num_bytes
    return _Replay(peak_bytes=peak, stall_s=stall_s, last_arrival_s=0.0)


def fetches(
    index: int,
    tensors: Sequence[SavedTensor],
    leaving: Sequence[bool],
    issued: Container[int],
    setting: SwapSetting,
) -> list[int]:
    """Return whose transfers in begin when the backward uses tensor `index`.

    That tensor itself where nobody fetched it, those up to `lower` before it, and as
    many up to `upper` as fit into the window. The swap hooks and the prediction both
    ask here, so they cannot differ.
    """
    wanted = []
    ahead = 0
    for other in range(index, max(-1, index - setting.upper - 1), -1):
        if not leaving[other]:
            continue
        within_lower = index - other <= setting.lower
        ahead += 0 if within_lower else tensors[other].num_bytes
        if not within_lower and ahead > setting.window_bytes:
            break
        if other not in issued:
            wanted.append(other)
    return wanted


def tune_swap(
    tensors: Sequence[SavedTensor],
    *,
    budget_bytes: int,
    outward: Link,
    inward: Link,
    min_bytes: int = 64 * 1024,
) -> SwapSetting:
    """Return S01's choice: the fewest tensors that fit, then the least distance.

    Raise the number until the saved tensors fit the budget, then raise the distance
    until the transfer is hidden or the budget is used up.

    Raises:
        PlanError: Even all of them do not fit, with the least budget that would do.
    """
    costs = (
        (setting, swap_cost(tensors, setting, outward=outward, inward=inward))
        for num_tensors in range(len(tensors) + 1)
        for setting in [
            SwapSetting(num_tensors=num_tensors, lower=0, upper=0, min_bytes=min_bytes)
        ]
    )
    least = None
    for setting, cost in costs:
        if cost.peak_bytes <= budget_bytes:
            return _raise_distance(
                tensors, setting, cost, budget_bytes, outward=outward, inward=inward
            )
        least = min(least or cost.peak_bytes, cost.peak_bytes)
    raise PlanError(
        f"saved tensors of {bytes_text(sum(t.num_bytes for t in tensors))} need "
        f"{bytes_text(least or 0)} on the device even when all swap, the budget is "
        f"{bytes_text(budget_bytes)}",
        hint="use more micro-batches, or recompute",
    )


def _raise_distance(
    tensors: Sequence[SavedTensor],
    best: SwapSetting,
    best_cost: SwapCost,
    budget_bytes: int,
    *,
    outward: Link,
    inward: Link,
) -> SwapSetting:
    for lower in itertools.count(1):
        if lower > len(tensors) or best_cost.stall_s <= 0.0:
            return best
        setting = SwapSetting(
            num_tensors=best.num_tensors,
            lower=lower,
            upper=lower,
            min_bytes=best.min_bytes,
        )
        cost = swap_cost(tensors, setting, outward=outward, inward=inward)
        if cost.peak_bytes > budget_bytes:
            return best
        if cost.stall_s < best_cost.stall_s:
            best, best_cost = setting, cost
    raise AssertionError("counts without end")
