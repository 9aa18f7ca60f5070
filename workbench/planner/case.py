"""A layout as plain numbers: one case for `plan`, arrays of them for `search`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, get_args

from workbench.layout import Axis, Layout
from workbench.layout.layout import ContextKind, Precision, Recompute, Schedule
from workbench.planner.numeric import Num

T = TypeVar("T")

#: Codes are positions in the layout's own lists of choices.
SCHEDULES: tuple[str, ...] = get_args(Schedule)
RECOMPUTES: tuple[str, ...] = get_args(Recompute)
CONTEXTS: tuple[str, ...] = get_args(ContextKind)
PRECISIONS: tuple[str, ...] = get_args(Precision)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the formulas need of a layout, each a number or an array of numbers.

    Args:
        pp, dp, fsdp, cp, ep, tp: Degrees.
        num_microbatches, chunks, zero: As in `Layout`.
        sp: 1 with sequence parallelism, else 0.
        ends_as_layers: 1 where the model's ends count as layers, else 0.
        schedule, recompute, context: Codes, see `SCHEDULES` and its neighbours.
        precision: Of compute; one for all cases.
        offload_optimizer, offload_activations, offload_weights: 1 where in host memory.
        micro_batch: Samples of one micro-batch on one data rank.
        spans: Per axis, ranks between the first and the last of its group, both counted.
        strides: Per axis, how far apart its neighbours' rank numbers are.
        stage: The pipeline coordinate that is judged.
        shard: The fsdp coordinate that is judged.
        memo: Figures worked out once that hold for every stage (see `remembered`).
        stage_memo: The same for this stage alone.
    """

    pp: Num
    dp: Num
    fsdp: Num
    cp: Num
    ep: Num
    tp: Num
    num_microbatches: Num
    chunks: Num
    zero: Num
    sp: Num
    ends_as_layers: Num
    schedule: Num
    recompute: Num
    context: Num
    precision: str
    offload_optimizer: Num
    offload_activations: Num
    offload_weights: Num
    micro_batch: Num
    strides: dict[str, Num]
    stage: Num
    shard: Num
    memo: dict[tuple[str, ...], Any] = field(
        default_factory=dict, compare=False, repr=False
    )
    stage_memo: dict[tuple[str, ...], Any] = field(
        default_factory=dict, compare=False, repr=False
    )

    def at(self, *, stage: Num) -> "Case":
        """Return the same layout judged at another stage."""
        return replace(self, stage=stage, stage_memo={})

    def of_rank(self, *, stage: Num, shard: Num) -> "Case":
        """Return the same layout judged at another stage and shard."""
        return replace(self, stage=stage, shard=shard, memo={}, stage_memo={})

    @property
    def num_ranks(self) -> Num:
        """Ranks of the grid (spatial axes are planned with convolution nets)."""
        return self.pp * self.dp * self.fsdp * self.cp * self.ep * self.tp

    @property
    def replicas(self) -> Num:
        """Ranks that hold the same dense parameters, before any sharding."""
        return self.dp * self.fsdp * self.cp * self.ep

    def degree(self, axis: str) -> Num:
        """Return the degree of an axis, or of all ranks for "world"."""
        return self.num_ranks if axis == "world" else getattr(self, axis)


def remembered(
    memo: dict[tuple[str, ...], Any], key: tuple[str, ...], work: Callable[[], T]
) -> T:
    """Return a figure of a case, worked out at its first use.

    Formulas ask for the same figures over and over; for arrays of layouts that is most
    of the time of a search.
    """
    if key not in memo:
        memo[key] = work()
    found: T = memo[key]
    return found


def case_of(
    layout: Layout, *, global_batch: int, stage: int = 0, shard: int = 0
) -> Case:
    """Return one rank's case of a layout."""
    parts = layout.num_data_ranks * layout.num_microbatches
    return Case(
        pp=layout.pp,
        dp=layout.dp,
        fsdp=layout.fsdp,
        cp=layout.cp,
        ep=layout.ep,
        tp=layout.tp,
        num_microbatches=layout.num_microbatches,
        chunks=layout.chunks,
        zero=layout.zero,
        sp=int(layout.sp),
        ends_as_layers=int(layout.ends_as_layers),
        schedule=SCHEDULES.index(layout.schedule),
        recompute=RECOMPUTES.index(layout.recompute),
        context=CONTEXTS.index(layout.context),
        precision=layout.precision,
        offload_optimizer=int("optimizer" in layout.offload),
        offload_activations=int("activations" in layout.offload),
        offload_weights=int("weights" in layout.offload),
        micro_batch=global_batch // parts,
        strides=_strides(layout),
        stage=stage,
        shard=shard,
    )


def _strides(layout: Layout) -> dict[str, Num]:
    order = [*layout.order, *(axis for axis in Axis if axis not in layout.order)]
    strides: dict[str, Num] = {"world": 1}
    for place, axis in enumerate(order):
        strides[axis.value] = math.prod(layout.degree(a) for a in order[place + 1 :])
    return strides
