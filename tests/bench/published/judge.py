"""Asks the planner a row's question: step seconds, and the peak of the worst rank."""

from dataclasses import replace

from tests.bench.published.rows import Question, Refused
from workbench.errors import WorkbenchError
from workbench.layout import Layout
from workbench.layout.check import check_batch, check_model
from workbench.planner.case import case_of
from workbench.planner.memory import memory
from workbench.planner.numbers import ModelNumbers, model_numbers
from workbench.planner.predict import slowest_stage
from workbench.planner.profiles import profile
from workbench.planner.step_time import Seconds, step_seconds


def judged(question: Question) -> Seconds:
    """Return the predicted step of a question.

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
    return step_seconds(numbers, case, question.hardware)


def with_recompute(question: Question, numbers: ModelNumbers) -> Layout:
    """Return the layout; where recompute is not stated, full only if none does not fit."""
    layout = question.layout
    if question.recompute_stated:
        return layout
    capacity = question.hardware.groups[0].device.memory_bytes.value
    case = case_of(layout, global_batch=question.global_batch)
    fits = memory(numbers, case).peak <= 0.95 * capacity
    return layout if fits else replace(layout, recompute="full")
