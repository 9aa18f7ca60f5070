"""Layouts with offload train as those without, through the whole training loop."""

from functools import cache

import pytest

from tests.numerics.training_runs import plan_without_torch, small_corpus
from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.strategies import Settings, build, check
from workbench.strategies.offloaded import Offloaded
from workbench.testing.ranks import Place, run_ranks
from workbench.training import Trainer

ALL = ("weights", "activations", "optimizer")


def losses(place: Place, plan, corpus, num_steps: int) -> tuple[list[float], float]:
    """Train; return the losses and a validation loss."""
    trainer = Trainer(plan, corpus, place.group.ranks(plan.layout), lr=3e-3)
    result = trainer.fit(num_steps)
    if isinstance(trainer.strategy, Offloaded) and trainer.strategy.swap is not None:
        assert trainer.strategy.swap.last.counts.moved_bytes > 0
    return list(result.losses), trainer.evaluate()


@cache
def run(layout: Layout, num_steps: int, **numbers: int):
    plan = plan_without_torch(layout, **numbers)
    return run_ranks(
        losses, plan, small_corpus(), num_steps, num_ranks=layout.num_ranks
    )


@pytest.mark.parametrize("axes", [{}, {"dp": 2, "num_microbatches": 2}])
def test_30_losses_streamed_equal_those_of_the_plain_run_bit_for_bit(axes) -> None:
    assert run(Layout(**axes, offload=ALL), 30) == run(Layout(**axes), 30)


def test_30_losses_with_states_on_the_host_equal_the_plain_run_bit_for_bit() -> None:
    assert run(Layout(offload=("optimizer",)), 30) == run(Layout(), 30)


@pytest.mark.parametrize(
    ("axes", "offload"),
    [
        ({"fsdp": 2}, ("optimizer", "activations")),
        ({"fsdp": 2}, ALL),
        ({"dp": 2}, ("activations",)),
        ({"pp": 2, "num_microbatches": 4}, ("activations",)),
    ],
)
def test_two_ranks_that_swap_equal_two_that_do_not(axes, offload) -> None:
    # Wide enough that each micro-batch's activations are worth moving.
    wide = {"hidden": 128, "batch": 16}

    assert run(Layout(**axes, offload=offload), 5, **wide) == run(
        Layout(**axes), 5, **wide
    )


def test_tied_weights_stream_exactly() -> None:
    layout = Layout(num_microbatches=2, offload=ALL)

    assert run(layout, 10, tied=1) == run(Layout(num_microbatches=2), 10, tied=1)


def resumed(place: Place, plan, corpus, path) -> list[float]:
    def fresh() -> Trainer:
        return Trainer(plan, corpus, place.group.ranks(plan.layout), lr=3e-3)

    first = fresh()
    first.fit(5)
    first.save(path)
    second = fresh()
    second.load(path)
    return [first.fit(5).losses, second.fit(5).losses]


@pytest.mark.parametrize("offload", [ALL, ("optimizer",)])
def test_a_checkpoint_of_offloaded_states_resumes_bit_for_bit(tmp_path, offload):
    plan = plan_without_torch(Layout(offload=offload))

    [[went_on, resumed_losses]] = run_ranks(
        resumed, plan, small_corpus(), tmp_path / "saved", num_ranks=1
    )

    assert resumed_losses == went_on


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(offload=("weights",)), "keeps on the device"),
        (Layout(tp=2, offload=ALL), "weights leave the device with dp alone"),
        (Layout(fsdp=2, num_microbatches=2, offload=ALL), "num_microbatches=2"),
    ],
)
def test_what_cannot_stream_is_refused(layout, message) -> None:
    with pytest.raises(LayoutError, match=message):
        check(layout)
    with pytest.raises(LayoutError, match=message):
        build(layout, Settings(nominal_tokens=1))
