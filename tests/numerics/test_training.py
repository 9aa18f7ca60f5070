"""Two ranks train as one would, send what was planned, and go on where they stopped."""

from pathlib import Path

import pytest

from tests.numerics.training_runs import (
    Report,
    plan_without_torch,
    small_corpus,
    train,
    train_stopped_at_25,
    train_with_a_lost_reduction,
)
from workbench.layout import Layout
from workbench.testing.ranks import run_ranks

LAYOUTS = {"dp": Layout(dp=2), "fsdp": Layout(fsdp=2)}
AXES = tuple(LAYOUTS)
#: float32 sums in another order: measured 1e-6 over 50 steps.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def reference() -> Report:
    plan = plan_without_torch(Layout())
    return run_ranks(train, plan, small_corpus(), 50, num_ranks=1)[0]


@pytest.fixture(scope="module")
def trained() -> dict[str, list[Report]]:
    return {
        axis: run_ranks(train, plan_without_torch(layout), small_corpus(), 50)
        for axis, layout in LAYOUTS.items()
    }


def largest_difference(left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("axis", AXES)
def test_two_ranks_have_the_losses_of_one(
    axis: str, reference: Report, trained: dict[str, list[Report]]
) -> None:
    for report in trained[axis]:
        assert largest_difference(report.losses, reference.losses) < TOLERANCE


def test_the_reference_learns_and_its_batches_are_uneven(
    reference: Report, trained: dict[str, list[Report]]
) -> None:
    assert reference.losses[0] - reference.losses[-1] > 0.5
    first, second = trained["dp"]
    assert (4, 4) in zip(first.sizes, second.sizes, strict=True)
    assert (2, 1) in zip(first.sizes, second.sizes, strict=True)


@pytest.mark.parametrize("axis", AXES)
def test_one_lost_reduction_is_noticed(axis: str, reference: Report) -> None:
    plan = plan_without_torch(LAYOUTS[axis])

    mutant = run_ranks(train_with_a_lost_reduction, plan, small_corpus())[0]

    assert largest_difference(mutant.losses, reference.losses) > 10 * TOLERANCE


@pytest.mark.parametrize("axis", AXES)
def test_a_resumed_run_is_the_uninterrupted_one(axis: str, tmp_path: Path) -> None:
    plan = plan_without_torch(LAYOUTS[axis])

    losses = run_ranks(train_stopped_at_25, plan, small_corpus(), tmp_path)[0]

    assert losses[:25] == losses[25:]


@pytest.mark.parametrize("axis", AXES)
def test_traffic_is_the_planned_one_to_the_byte(
    axis: str, trained: dict[str, list[Report]]
) -> None:
    plan = plan_without_torch(LAYOUTS[axis])
    planned: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for line in plan.comm:
        key = (line.phase, line.op, line.axis)
        before = planned.get(key, (0, 0, 0))
        now = (line.count, line.payload_bytes, line.sent_bytes)
        planned[key] = tuple(50 * n + b for n, b in zip(now, before, strict=True))

    for report in trained[axis]:
        counted = {key: row for key, row in report.traffic.items() if key[0] == "step"}
        assert counted == {key: row for key, row in planned.items() if key[0] == "step"}


@pytest.mark.parametrize("axis", AXES)
def test_weights_gradients_and_optimizer_take_the_planned_bytes(
    axis: str, trained: dict[str, list[Report]]
) -> None:
    plan = plan_without_torch(LAYOUTS[axis])

    for planned, report in zip(plan.memory, trained[axis], strict=True):
        by_category = planned.by_category
        assert report.held.weights == by_category["weights"]
        assert report.held.gradients == by_category["gradients"]
        assert report.gradient_bytes == by_category["gradients"]
        assert report.held.optimizer == by_category["optimizer"]


def test_telemetry_sums_to_what_was_counted(trained: dict[str, list[Report]]) -> None:
    for report in trained["dp"]:
        told: dict[tuple[str, str, str], int] = {}
        for event in report.events:
            if event.kind == "collective" and event.payload["phase"] == "step":
                key = tuple(event.payload[name] for name in ("phase", "op", "axis"))
                told[key] = told.get(key, 0) + event.payload["sent_bytes"]
        counted = {
            key: row[2] for key, row in report.traffic.items() if key[0] == "step"
        }
        assert told == counted
