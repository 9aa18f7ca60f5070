"""Asks the planner a row's question: step seconds, and memory of the worst rank."""

from dataclasses import dataclass, replace

from tests.bench.published.rows import Question, Refused
from workbench.errors import WorkbenchError
from workbench.layout import Layout
from workbench.layout.check import check_batch, check_model
from workbench.planner.case import case_of
from workbench.planner.compute import PEAK_DTYPE
from workbench.planner.memory import memory, reserved_bytes
from workbench.planner.numbers import ModelNumbers, model_numbers
from workbench.planner.predict import slowest_stage
from workbench.planner.profiles import profile
from workbench.planner.step_time import step_seconds


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the planner says of a row.

    Args:
        step_s: Seconds of a step.
        ideal_s: Model FLOPs at the peak rate: what a constant efficiency scales.
        peak_bytes: Highest tensor bytes of the worst rank.
        reserved_bytes: The same with context, buffers and fragmentation.
        fits: Whether that is within the device.
    """

    step_s: float
    ideal_s: float
    peak_bytes: float
    reserved_bytes: float
    fits: bool


def judged(question: Question) -> Judgement:
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
    stage = slowest_stage(numbers, layout, question.hardware, batch)
    case = case_of(layout, global_batch=batch, stage=stage)
    device = question.hardware.groups[0].device
    flops = 3 * question.model.forward_flops * batch / layout.num_ranks
    peak, reserved = worst_bytes(numbers, layout, batch)
    return Judgement(
        step_s=float(step_seconds(numbers, case, question.hardware).total),
        ideal_s=flops / device.peak(PEAK_DTYPE[layout.precision]),
        peak_bytes=peak,
        reserved_bytes=reserved,
        fits=reserved <= device.memory_bytes.value,
    )


def worst_bytes(
    numbers: ModelNumbers, layout: Layout, batch: int
) -> tuple[float, float]:
    """Return peak and reserved bytes of the fullest stage: first, second or last."""
    peaks = []
    for stage in {0, min(1, layout.pp - 1), layout.pp - 1}:
        case = case_of(layout, global_batch=batch, stage=stage)
        peaks.append(float(memory(numbers, case).peak))
    return max(peaks), float(reserved_bytes(numbers, max(peaks)))


def with_recompute(question: Question, numbers: ModelNumbers) -> Layout:
    """Return the layout; where recompute is not stated, full only if none does not fit."""
    layout = question.layout
    if question.recompute_stated:
        return layout
    capacity = question.hardware.groups[0].device.memory_bytes.value
    _, reserved = worst_bytes(numbers, layout, question.global_batch)
    return layout if reserved <= capacity else replace(layout, recompute="full")
