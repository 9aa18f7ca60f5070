"""One judgement for one case or many: worst memory, and the step at the slowest stage."""

from dataclasses import dataclass

from workbench.hardware import ClusterSpec
from workbench.planner.case import Case
from workbench.planner.memory import memory
from workbench.planner.numbers import ModelNumbers
from workbench.planner.numeric import Num, largest, where
from workbench.planner.step_time import (
    Seconds,
    slot_of,
    step_seconds,
    telling_cases,
)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What decides about a layout.

    Args:
        peak: Bytes of the fullest rank.
        case: The layout at its slowest stage.
        seconds: Of a step, as that stage sees it.
    """

    peak: Num
    case: Case
    seconds: Seconds


def judge(numbers: ModelNumbers, case: Case, hardware: ClusterSpec) -> Judgement:
    """Judge memory, traffic and time of one case, or of every case of an array.

    Args:
        numbers: Of the model.
        hardware: Whose first kind of device runs it.
        case: At the first shard, which holds as much as any.
    """
    stages = telling_cases(case)
    slowest = case.at(stage=_slowest(numbers, stages, hardware))
    return Judgement(
        peak=largest(*(memory(numbers, stage).peak for stage in stages)),
        case=slowest,
        seconds=step_seconds(numbers, slowest, hardware, stages),
    )


def _slowest(
    numbers: ModelNumbers, stages: tuple[Case, Case, Case], hardware: ClusterSpec
) -> Num:
    """Return the pipeline coordinate with the longest slot."""
    slowest = stages[0].stage
    longest = slot_of(numbers, stages[0], hardware).total
    for stage in stages[1:]:
        total = slot_of(numbers, stage, hardware).total
        slowest = where(total > longest, stage.stage, slowest)
        longest = largest(longest, total)
    return slowest
