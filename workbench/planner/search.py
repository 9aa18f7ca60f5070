"""The best layouts of all: judged in arrays, with what was rejected and why."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workbench.errors import PlanError
from workbench.hardware import ClusterSpec
from workbench.layout import Layout
from workbench.layout.layout import Precision
from workbench.model import ModelSpec
from workbench.planner.contract import Plan, TextTable
from workbench.planner.judge import judge
from workbench.planner.memory import reserved_bytes
from workbench.planner.numbers import ModelNumbers, model_numbers
from workbench.planner.predict import plan
from workbench.planner.profiles import profile as named_profile
from workbench.planner.space import Space, space
from workbench.planner.tables import html_table, text_table
from workbench.units import bytes_text, count_text, seconds_text

Objective = Literal["time", "memory"]

#: Layouts judged together: arrays of this length stay in a core's cache.
BATCH = 8192


@dataclass(frozen=True, kw_only=True)
class Point:
    """A layout with its two figures."""

    layout: Layout
    step_s: float
    peak_bytes: float


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchResult(TextTable):
    """What a search found.

    Args:
        best: Plans, best first.
        front: Layouts that none beats in both time and memory, fastest first.
        num_judged: Layouts whose memory, traffic and time were evaluated.
        rejected: How many layouts were not, or do not fit, by reason.
    """

    best: tuple[Plan, ...]
    front: tuple[Point, ...]
    num_judged: int
    rejected: dict[str, int]

    def __str__(self) -> str:
        return "\n".join([*self._lines(), text_table(_HEADER, self._rows())])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{line}</p>" for line in self._lines())
        return lines + html_table(_HEADER, self._rows())

    def _lines(self) -> list[str]:
        share = self.rejected.get(TOO_BIG, 0) / max(self.num_judged, 1)
        return [
            f"{count_text(self.num_judged)} layouts judged, "
            f"{share:.0%} need more memory than a rank has"
        ]

    def _rows(self) -> list[list[str]]:
        return [
            [
                plan.layout.to_toml().replace("[layout]\n", "").replace("\n", ", "),
                seconds_text(plan.step_time.total_s),
                bytes_text(plan.peak.peak_bytes),
                f"{plan.mfu:.1%}",
            ]
            for plan in self.best
        ]


_HEADER = ("layout", "step", "peak", "MFU")
TOO_BIG = "needs more memory than a rank has"


def search(
    model: ModelSpec,
    hardware: ClusterSpec,
    *,
    global_batch: int,
    objective: Objective = "time",
    precision: Precision = "bf16",
    profile: str = "megatron-core",
    num_ranks: int | None = None,
    top: int = 5,
) -> SearchResult:
    """Judge every layout of the ranks and return the best that fit.

    Args:
        model: What is trained.
        hardware: On what.
        global_batch: Samples per step over all ranks.
        objective: What is smallest first: "time" or "memory".
        precision: Of compute.
        profile: The framework whose facts hold.
        num_ranks: Ranks to use; all devices where None.
        top: How many plans to return.

    Raises:
        PlanError: No layout divides, or none fits, with the nearest one.
    """
    ranks = hardware.num_devices if num_ranks is None else num_ranks
    found = space(model, ranks, global_batch=global_batch, precision=precision)
    numbers = model_numbers(model, named_profile(profile))
    peak, seconds = judge_all(numbers, found, hardware)
    capacity = hardware.groups[0].device.memory_bytes.value
    reserved = reserved_bytes(numbers, peak)
    fits = np.flatnonzero(reserved <= capacity)
    if not len(fits):
        raise PlanError(
            f"none of {len(found):,} layouts of {model.name} on {ranks} ranks fits: the "
            f"smallest needs {bytes_text(float(reserved.min()))} of "
            f"{bytes_text(capacity)}",
            hint="use more ranks, or hardware with more memory",
        )
    goal = seconds if objective == "time" else peak
    order = fits[np.argsort(goal[fits], kind="stable")]

    def planned(index: np.int64) -> Plan:
        return plan(
            model,
            hardware,
            found.layout(int(index)),
            global_batch=global_batch,
            profile=profile,
        )

    return SearchResult(
        best=tuple(planned(index) for index in order[:top]),
        front=tuple(
            Point(
                layout=found.layout(int(index)),
                step_s=float(seconds[index]),
                peak_bytes=float(peak[index]),
            )
            for index in pareto(seconds, peak, fits)
        ),
        num_judged=len(found),
        rejected={**found.left_out, TOO_BIG: int((reserved > capacity).sum())},
    )


def judge_all(
    numbers: ModelNumbers, found: Space, hardware: ClusterSpec
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return peak bytes and step seconds of every layout, all fully evaluated."""
    peaks, seconds = [], []
    for begin in range(0, len(found), BATCH):
        case = found.part(begin, begin + BATCH).cases()
        judgement = judge(numbers, case, hardware)
        peaks.append(np.asarray(judgement.peak, dtype=np.float64))
        seconds.append(np.asarray(judgement.seconds.total, dtype=np.float64))
    return np.concatenate(peaks), np.concatenate(seconds)


def pareto(
    seconds: NDArray[np.float64], peak: NDArray[np.float64], fits: NDArray[np.intp]
) -> list[np.int64]:
    """Return layouts that no other beats in both, fastest first.

    >>> pareto(np.array([1.0, 2.0, 3.0]), np.array([9.0, 9.0, 5.0]), np.arange(3))
    [np.int64(0), np.int64(2)]
    """
    order = fits[np.lexsort((peak[fits], seconds[fits]))]
    lowest = np.minimum.accumulate(peak[order])
    first = np.ones(len(order), dtype=bool)
    first[1:] = lowest[1:] < lowest[:-1]
    return [np.int64(index) for index in order[first]]
