"""Asks the planner a row's question: step seconds, and memory of the worst rank."""

from dataclasses import dataclass, replace

from tests.bench.published.rows import Question, Refused
from workbench.errors import WorkbenchError
from workbench.layout import Layout
from workbench.layout.check import check_batch, check_model
from workbench.planner.case import case_of
from workbench.planner.compute import PEAK_DTYPE
from workbench.planner.judge import judge
from workbench.planner.memory import reserved_bytes
from workbench.planner.numbers import ModelNumbers, model_numbers
from workbench.planner.profiles import profile


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the planner says of a row.

    Args:
        step_s: Seconds of a step.
        ideal_s: Model FLOPs at the peak rate: what a constant efficiency scales.
        peak_bytes: Highest tensor bytes of the worst rank.
        pool_bytes: The same with what the allocator loses between its blocks.
        fits: Whether that is within the device.
    """

    step_s: float
    ideal_s: float
    peak_bytes: float
    pool_bytes: float
    fits: bool


def judged(question: Question) -> Answer:
    """Return the planner's answer.

    Raises:
        Refused: The planner refuses the layout.
    """
    try:
        check_batch(question.layout, question.global_batch)
        check_model(question.layout, question.model)
    except WorkbenchError as error:
        raise Refused(error.message[:60]) from error
    numbers = model_numbers(question.model, profile(question.profile))
    layout, batch = with_recompute(question, numbers), question.global_batch
    judgement = judge(numbers, case_of(layout, global_batch=batch), question.hardware)
    device = question.hardware.groups[0].device
    flops = 3 * question.model.forward_flops * batch / layout.num_ranks
    reserved = float(reserved_bytes(numbers, judgement.peak))
    return Answer(
        step_s=float(judgement.seconds.total),
        ideal_s=flops / device.peak(PEAK_DTYPE[layout.precision]),
        peak_bytes=float(judgement.peak),
        pool_bytes=float(judgement.peak) * (1 + numbers.profile.fragmentation),
        fits=reserved <= device.memory_bytes.value,
    )


def with_recompute(question: Question, numbers: ModelNumbers) -> Layout:
    """Return the layout; where recompute is not stated, full only if none does not fit."""
    layout = question.layout
    if question.recompute_stated:
        return layout
    capacity = question.hardware.groups[0].device.memory_bytes.value
    case = case_of(layout, global_batch=question.global_batch)
    peak = judge(numbers, case, question.hardware).peak
    return (
        layout
        if reserved_bytes(numbers, peak) <= capacity
        else replace(layout, recompute="full")
    )
