"""Every axis and composition trains as one rank would, and holds the planned bytes."""

import pytest

from tests.numerics.layouts_table import (
    ALONE,
    COMPOSED,
    LAYOUTS,
    Outcome,
    lose_first,
    planned,
    planned_traffic,
    run_layout,
)
from workbench.layout import Layout

NUM_STEPS = 30
#: float32 sums in another order: measured below 2e-6 over 30 steps.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def references() -> dict[str, Outcome]:
    return {
        family: run_layout(Layout(), NUM_STEPS, family=family)[0]
        for family in ("gpt", "llama")
    }


def largest_difference(outcomes: list[Outcome], reference: Outcome) -> float:
    return max(
        abs(left - right)
        for outcome in outcomes
        for left, right in zip(outcome.losses, reference.losses, strict=True)
    )


def held_bytes(layout: Layout) -> list[tuple[int, int, int]]:
    return [
        tuple(rank.by_category[kind] for kind in ("weights", "gradients", "optimizer"))
        for rank in planned(layout).memory
    ]


@pytest.mark.parametrize("name", [*ALONE, *COMPOSED])
def test_a_layout_trains_like_one_rank_with_the_planned_bytes(
    name: str, references: dict[str, Outcome]
) -> None:
    reference = references["gpt"]

    outcomes = run_layout(LAYOUTS[name], NUM_STEPS)

    assert reference.losses[0] - reference.losses[-1] > 0.5
    assert largest_difference(outcomes, reference) < TOLERANCE
    for outcome in outcomes:
        assert outcome.val_loss == pytest.approx(reference.val_loss, abs=TOLERANCE)
        assert outcome.text == reference.text
    assert [outcome.held for outcome in outcomes] == held_bytes(LAYOUTS[name])
    made = planned(LAYOUTS[name])
    for rank, outcome in enumerate(outcomes):
        assert outcome.traffic == planned_traffic(made, rank)


@pytest.mark.parametrize("name", ["tp, sequence", "cp, ring", "pp, 1f1b"])
def test_llama_trains_like_one_rank(name: str, references: dict[str, Outcome]) -> None:
    outcomes = run_layout(LAYOUTS[name], NUM_STEPS, family="llama")

    assert largest_difference(outcomes, references["llama"]) < TOLERANCE


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp=2, precision="bf16", recompute="full"),
        Layout(fsdp=2, precision="bf16"),
        Layout(tp=2, sp=True, precision="bf16"),
        Layout(pp=2, num_microbatches=2, precision="bf16"),
    ],
    ids=lambda layout: "".join(layout.axes()),
)
def test_bfloat16_stays_near_float32(
    layout: Layout, references: dict[str, Outcome]
) -> None:
    outcomes = run_layout(layout, NUM_STEPS)

    # Eight bits of mantissa are 4e-3 of a logit; measured 1e-3 to 4e-3 nats.
    assert largest_difference(outcomes, references["gpt"]) < 2e-2
    for rank, outcome in enumerate(outcomes):
        assert outcome.traffic == planned_traffic(planned(layout), rank)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("dp", "all_reduce"),
        ("tp", "all_reduce"),
        ("cp, all_gather", "all_reduce"),
        ("pp, 1f1b", "isend"),
    ],
)
def test_a_lost_call_is_noticed(
    name: str, op: str, references: dict[str, Outcome]
) -> None:
    mutant = run_layout(LAYOUTS[name], NUM_STEPS, mutate=lose_first(op))

    assert largest_difference(mutant, references["gpt"]) > 10 * TOLERANCE
