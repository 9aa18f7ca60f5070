"""A layout: the degrees of each axis, their order, and how a step is run."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from workbench.errors import LayoutError

Precision = Literal["fp32", "bf16", "fp16", "fp8"]
Recompute = Literal["none", "selective", "full"]


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


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which rank does what in a step. Valid once built.

    Args:
        pp, dp, fsdp, cp, ep, tp, sx, sy, sz: The degree of each axis.
        order: Axes from outermost to innermost; ranks count along the innermost first.
        num_microbatches: Parts that one step's batch of a data rank is cut into.
        schedule: Pipeline schedule, e.g. "1f1b"; "none" without a pipeline.
        precision: Of compute.
        recompute: What the backward computes again instead of keeping.

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
    schedule: str = "none"
    precision: Precision = "fp32"
    recompute: Recompute = "none"

    def __post_init__(self) -> None:
        for axis in Axis:
            if self.degree(axis) < 1:
                raise LayoutError(
                    f"{axis} is {self.degree(axis)}, a degree is at least 1",
                    hint=f"leave {axis} out, or set {axis}=1",
                )

    def degree(self, axis: Axis) -> int:
        """Return how many ranks lie along an axis."""
        degree: int = getattr(self, axis.value)
        return degree

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole grid: the product of the degrees."""
        return math.prod(self.degree(axis) for axis in Axis)
