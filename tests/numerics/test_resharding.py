"""A checkpoint of one layout goes on under another, exactly where it was."""

import contextlib
import io
from pathlib import Path

import pytest

from tests.numerics.layouts_table import LEARNING_RATE, planned
from tests.numerics.training_runs import small_corpus
from workbench.layout import Layout
from workbench.planner.contract import Plan
from workbench.testing.ranks import Place, run_ranks
from workbench.training import Trainer

SAVED_AT, GO_ON = 6, 4
#: float32 sums in another order.
TOLERANCE = 1e-5

FIRST = Layout(pp=2, tp=2, num_microbatches=2)
OTHERS = {
    "fsdp=4": Layout(fsdp=4),
    "dp=2": Layout(dp=2),
    "dp=2, zero=2": Layout(dp=2, zero=2),
    "one rank": Layout(),
    "fsdp=2, tp=2": Layout(fsdp=2, tp=2),
    "tp=2, sequence": Layout(tp=2, sp=True),
    "pp=4": Layout(pp=4, num_microbatches=4),
}


def begin(place: Place, made: Plan, folder: Path) -> tuple[float, ...]:
    """Train to the end, with a checkpoint on the way."""
    trainer = Trainer(
        made, small_corpus(), place.group.ranks(made.layout), lr=LEARNING_RATE
    )
    with contextlib.redirect_stdout(io.StringIO()):
        result = trainer.fit(
            SAVED_AT + GO_ON, checkpoint_every=SAVED_AT, checkpoint_dir=folder
        )
    return result.losses[SAVED_AT:]


def go_on(place: Place, made: Plan, folder: Path) -> tuple[float, ...]:
    """Train the rest from the checkpoint."""
    trainer = Trainer(
        made, small_corpus(), place.group.ranks(made.layout), lr=LEARNING_RATE
    )
    trainer.load(folder / f"step-{SAVED_AT:06d}")
    with contextlib.redirect_stdout(io.StringIO()):
        return trainer.fit(GO_ON).losses


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[float, ...]]:
    folder = tmp_path_factory.mktemp("checkpoints")
    losses = run_ranks(begin, planned(FIRST), folder, num_ranks=4)[0]
    return folder, losses


def test_a_zero_checkpoint_goes_on_where_it_was(tmp_path: Path) -> None:
    made = planned(Layout(dp=2, zero=1))

    expected = run_ranks(begin, made, tmp_path)[0]

    assert run_ranks(go_on, made, tmp_path)[0] == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("name", OTHERS)
def test_a_pipeline_checkpoint_goes_on_under_another_layout(
    name: str, saved: tuple[Path, tuple[float, ...]]
) -> None:
    folder, expected = saved
    layout = OTHERS[name]

    for losses in run_ranks(go_on, planned(layout), folder, num_ranks=layout.num_ranks):
        assert losses == pytest.approx(expected, abs=TOLERANCE)
