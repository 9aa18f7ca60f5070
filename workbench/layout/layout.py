"""A layout: the degrees of each axis, their order, and how a step is run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Literal, Self, get_args

from workbench.errors import LayoutError

Precision = Literal["fp32", "bf16", "fp16", "fp8"]
Recompute = Literal["none", "selective", "full"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"]
ContextKind = Literal["ring", "all_gather", "ulysses"]
Offload = Literal["optimizer", "activations", "weights"]


class Axis(StrEnum):
    """A direction of the rank grid (a tensor's direction is a dim, never an axis)."""

    PP = "pp"
    DP = "dp"
    FSDP = "fsdp"
    CP = "cp"
    EP = "ep"
    TP = "tp"
    SX = "sx"
    SY = "sy"
    SZ = "sz"


#: Outermost first: neighbours on the last axis are neighbours in rank number.
DEFAULT_ORDER = tuple(Axis)

#: Axes whose ranks see different samples.
DATA_AXES = (Axis.DP, Axis.FSDP, Axis.EP)

#: Schedules that put exactly two chunks on each rank.
TWO_CHUNK_SCHEDULES = ("zb-v", "dualpipe-v")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which rank does what in a step. Valid once built.

    Args:
        pp, dp, fsdp, cp, ep, tp, sx, sy, sz: The degree of each axis.
        order: Axes from outermost to innermost; ranks count along the innermost first.
        num_microbatches: Parts that one step's batch of a data rank is cut into.
        schedule: Pipeline schedule; without effect where pp is 1.
        chunks: Stages of one pipeline rank ("interleaved" needs 2 or more).
        ends_as_layers: Whether what stands before and after the layers counts as one
            layer each when pipeline stages are dealt.
        zero: ZeRO stage over dp: 1 cuts optimizer state, 2 also gradients, 3 also
            weights (fsdp is FSDP2's form of 3).
        sp: Sequence parallelism beside tp.
        context: How cp ranks exchange keys and values.
        precision: Of compute.
        recompute: What the backward computes again instead of keeping.
        offload: What lives in host memory.

    Raises:
        LayoutError: With the relation that failed and a value that would work.
    """

    pp: int = 1
    dp: int = 1
    fsdp: int = 1
    cp: int = 1
    ep: int = 1
    tp: int = 1
    sx: int = 1
    sy: int = 1
    sz: int = 1
    order: tuple[Axis, ...] = DEFAULT_ORDER
    num_microbatches: int = 1
    schedule: Schedule = "1f1b"
    chunks: int = 1
    ends_as_layers: bool = False
    zero: int = 0
    sp: bool = False
    context: ContextKind = "ring"
    precision: Precision = "fp32"
    recompute: Recompute = "none"
    offload: tuple[Offload, ...] = ()

    def __post_init__(self) -> None:
        for name in (*Axis, "num_microbatches", "chunks"):
            _check_count(str(name), getattr(self, str(name)))
        _check_order(self)
        _check_choices(self)
        _check_schedule(self)
        if self.sp and self.tp == 1:
            raise LayoutError(
                "sp=True splits what tp leaves whole, and tp is 1",
                hint="set tp=2 or more, or sp=False",
            )

    def degree(self, axis: Axis) -> int:
        """Return how many ranks lie along an axis."""
        degree: int = getattr(self, axis.value)
        return degree

    def axes(self) -> tuple[Axis, ...]:
        """Return the axes with a degree above 1, outermost first."""
        return tuple(axis for axis in self.order if self.degree(axis) > 1)

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole grid: the product of the degrees."""
        return math.prod(self.degree(axis) for axis in Axis)

    @property
    def num_data_ranks(self) -> int:
        """Ranks that see different samples: the product of dp, fsdp and ep."""
        return math.prod(self.degree(axis) for axis in DATA_AXES)

    def coordinates(self, rank: int) -> Mapping[Axis, int]:
        """Return where a rank lies on every axis of the order.

        Raises:
            LayoutError: No such rank.
        """
        if not 0 <= rank < self.num_ranks:
            raise LayoutError(
                f"rank {rank} of a layout with ranks 0 to {self.num_ranks - 1}"
            )
        place: dict[Axis, int] = {}
        for axis in reversed(self.order):
            rank, place[axis] = divmod(rank, self.degree(axis))
        return {axis: place[axis] for axis in self.order}

    def rank_at(self, coordinates: Mapping[Axis, int]) -> int:
        """Return the rank at some coordinates; axes left out count as 0.

        Raises:
            LayoutError: A coordinate beyond its axis.
        """
        rank = 0
        for axis in self.order:
            place = coordinates.get(axis, 0)
            if not 0 <= place < self.degree(axis):
                raise LayoutError(
                    f"coordinate {axis}={place} on an axis of degree {self.degree(axis)}"
                )
            rank = rank * self.degree(axis) + place
        return rank

    def groups(self, axis: Axis) -> tuple[tuple[int, ...], ...]:
        """Return the groups along an axis: ranks that differ in this axis alone."""
        return tuple(
            self.group_of(rank, axis)
            for rank in range(self.num_ranks)
            if self.coordinates(rank).get(axis, 0) == 0
        )

    def group_of(self, rank: int, axis: Axis) -> tuple[int, ...]:
        """Return the group of one rank along an axis, in order of that axis."""
        place = dict(self.coordinates(rank))
        return tuple(
            self.rank_at({**place, axis: step}) for step in range(self.degree(axis))
        )

    @classmethod
    def fill(cls, axis: Axis | str, *, num_ranks: int, **values: object) -> Self:
        """Return a layout of `num_ranks` ranks, one axis taking what the others leave.

        Raises:
            LayoutError: The other degrees do not divide the ranks.

        >>> Layout.fill(Axis.DP, tp=2, num_ranks=8).dp
        4
        """
        axis = Axis(axis)
        if axis.value in values:
            raise LayoutError(
                f"{axis}={values[axis.value]} is given and to be filled as well",
                hint=f"leave {axis} out",
            )
        rest = cls(**values)  # type: ignore[arg-type]
        if num_ranks < 1 or num_ranks % rest.num_ranks:
            raise LayoutError(
                f"{_product_text(rest)} = {rest.num_ranks} does not divide "
                f"{num_ranks} ranks",
                hint=f"try num_ranks={max(1, num_ranks // rest.num_ranks) * rest.num_ranks}",
            )
        return cls(**{**values, axis.value: num_ranks // rest.num_ranks})  # type: ignore[arg-type]

    def to_toml(self) -> str:
        """Return the layout as TOML text, only what differs from the defaults."""
        from workbench.layout.toml_file import write_toml

        return write_toml(self)

    @classmethod
    def from_toml(cls, text: str) -> "Layout":
        """Read a layout from TOML text.

        Raises:
            LayoutError: Not TOML, or a key that no layout has (with the nearest one).
        """
        from workbench.layout.toml_file import read_toml

        return read_toml(text)

    def __str__(self) -> str:
        return _product_text(self)


def _product_text(layout: Layout) -> str:
    """Return "dp 2 x tp 4", or "1 rank"."""
    parts = [f"{axis} {layout.degree(axis)}" for axis in layout.axes()]
    return " x ".join(parts) or "1 rank"


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LayoutError(
            f"{name} is {value!r}, it must be a whole number of at least 1",
            hint=f"leave {name} out, or set {name}=1",
        )


def _check_order(layout: Layout) -> None:
    if len(set(layout.order)) != len(layout.order):
        raise LayoutError(
            f"order names an axis twice: {', '.join(layout.order)}",
            hint=f"each once, e.g. {', '.join(DEFAULT_ORDER)}",
        )
    missing = [a for a in Axis if layout.degree(a) > 1 and a not in layout.order]
    if missing:
        raise LayoutError(
            f"order leaves out {', '.join(missing)}, which has a degree above 1",
            hint=f"order = {', '.join((*layout.order, *missing))}",
        )


_CHOICES = {
    "schedule": get_args(Schedule),
    "zero": (0, 1, 2, 3),
    "context": get_args(ContextKind),
    "precision": get_args(Precision),
    "recompute": get_args(Recompute),
}


def _check_choices(layout: Layout) -> None:
    for name, allowed in _CHOICES.items():
        value = getattr(layout, name)
        if value not in allowed:
            raise LayoutError(
                f"{name} is {value!r}",
                hint=f"one of {', '.join(str(choice) for choice in allowed)}",
            )
    for part in layout.offload:
        if part not in get_args(Offload):
            raise LayoutError(
                f"offload holds {part!r}", hint=f"of {', '.join(get_args(Offload))}"
            )


def _check_schedule(layout: Layout) -> None:
    if layout.pp == 1 and layout.chunks > 1:
        raise LayoutError(
            f"chunks={layout.chunks} cuts pipeline stages, and pp is 1",
            hint="set pp=2 or more, or chunks=1",
        )
    if layout.pp == 1:
        return
    if layout.schedule in TWO_CHUNK_SCHEDULES and layout.chunks != 2:
        raise LayoutError(
            f"{layout.schedule} puts 2 chunks on a rank, chunks is {layout.chunks}",
            hint="set chunks=2",
        )
    if layout.schedule == "interleaved" and layout.chunks < 2:
        raise LayoutError("interleaved needs 2 or more chunks", hint="set chunks=2")
    if layout.schedule in {"gpipe", "1f1b", "zb-h1"} and layout.chunks > 1:
        raise LayoutError(
            f"{layout.schedule} has one chunk on a rank, chunks is {layout.chunks}",
            hint='set schedule="interleaved", or chunks=1',
        )
    if layout.schedule == "interleaved" and layout.num_microbatches % layout.pp:
        raise LayoutError(
            f"interleaved needs num_microbatches {layout.num_microbatches} to divide "
            f"by pp {layout.pp}",
            hint=f"try num_microbatches={-(-layout.num_microbatches // layout.pp) * layout.pp}",
        )


def field_names() -> tuple[str, ...]:
    """Return the names of everything a layout says."""
    return tuple(field.name for field in fields(Layout))
