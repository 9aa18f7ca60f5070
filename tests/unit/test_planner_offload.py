"""Predicted cost of memory beyond the device: known cases and monotone sweeps."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import PlanError
from workbench.planner.offload import (
    Link,
    SavedTensor,
    StreamedUnit,
    SwapSetting,
    cache_cost,
    stream_cost,
    swap_cost,
    tune_swap,
)
from workbench.planner.offload.order import visits

MB = 10**6
FAST = Link(bytes_per_s=1e12)


def layers(num_layers: int, **changes: float) -> list[StreamedUnit]:
    numbers = {
        "weight_bytes": MB,
        "gradient_bytes": MB,
        "input_bytes": 0,
        "forward_s": 0.1,
        "backward_s": 0.3,
    }
    return [StreamedUnit(**(numbers | changes))] * num_layers


def test_a_fast_link_hides_all_but_the_ends() -> None:
    cost = stream_cost(layers(12), outward=FAST, inward=FAST)

    assert cost.step_s == pytest.approx(11 * 0.1 + 12 * 0.3, abs=1e-4)


def test_a_link_slower_than_the_compute_rules_the_forward() -> None:
    inward = Link(bytes_per_s=5e6)  # 0.2 s per layer against 0.1 s of compute

    cost = stream_cost(layers(12), outward=FAST, inward=inward)

    # All twelve come in one behind the other; the backward, at 0.3 s a layer, hides the
    # ten that come again.
    assert cost.step_s == pytest.approx(12 * 0.2 + 12 * 0.3, abs=1e-4)
    assert cost.moved_in_bytes == (12 + 10) * MB


def test_a_slow_optimizer_holds_back_the_next_forward() -> None:
    units = layers(12, optimizer_s=1.0)

    late = stream_cost(units, outward=FAST, inward=FAST)
    early = stream_cost(units, outward=FAST, inward=FAST, update_early=True)

    # Late, the host begins with the first unit when the backward ends, and the forward
    # follows behind it. Early, it begins with the last unit after one backward, but the
    # forward needs the first unit, which is updated last.
    assert late.step_s == pytest.approx(12 * 1.0 + 12 * 0.3, rel=1e-3)
    assert early.step_s == pytest.approx(0.3 + 12 * 1.0 + 11 * 0.1, rel=1e-3)


def test_device_bytes_do_not_depend_on_depth() -> None:
    costs = [
        stream_cost(layers(depth), outward=FAST, inward=FAST) for depth in (12, 48, 192)
    ]

    assert {cost.device_bytes for cost in costs} == {5 * MB}


def test_fewer_kept_inputs_cost_one_forward_more() -> None:
    every = stream_cost(layers(12, input_bytes=MB), outward=FAST, inward=FAST)
    fourth = stream_cost(
        layers(12, input_bytes=MB), outward=FAST, inward=FAST, checkpoint_every=4
    )

    assert every.moved_out_bytes - fourth.moved_out_bytes == 9 * MB
    # Two groups of four compute three forwards again; the last one does not.
    assert fourth.step_s - every.step_s == pytest.approx(6 * 0.1, abs=1e-3)


@given(st.integers(1, 30), st.integers(1, 8))
def test_every_unit_goes_back_once_and_after_all_that_it_needs(count, every) -> None:
    order = visits(count, checkpoint_every=every)

    back = [visit.unit for visit in order if visit.doing == "backward"]
    assert back == list(reversed(range(count)))
    seen: set[int] = set()
    for visit in order:
        if visit.doing != "forward" and visit.unit % every and visit.unit != count - 1:
            assert visit.unit - 1 in seen  # its input has been made
        seen.add(visit.unit)


# Swap --------------------------------------------------------------------------------

saved = st.builds(
    SavedTensor,
    num_bytes=st.integers(MB, 5 * MB),
    forward_s=st.floats(0.0, 0.1),
    backward_s=st.floats(0.0, 0.1),
)


@given(st.lists(saved, min_size=1, max_size=20), st.floats(1e7, 1e9))
def test_more_swapped_tensors_never_keep_more(tensors, rate) -> None:
    link = Link(bytes_per_s=rate)

    kept = [
        swap_cost(
            tensors, SwapSetting(num_tensors=count), outward=link, inward=link
        ).kept_bytes
        for count in range(len(tensors) + 1)
    ]

    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == 0


@given(st.lists(saved, min_size=1, max_size=20), st.floats(1e7, 1e9))
def test_a_longer_distance_never_stalls_more(tensors, rate) -> None:
    link = Link(bytes_per_s=rate)

    stalls = [
        swap_cost(
            tensors, SwapSetting(lower=lower, upper=lower), outward=link, inward=link
        ).stall_s
        for lower in range(len(tensors) + 1)
    ]

    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(stalls))


@given(st.lists(saved, min_size=1, max_size=12), st.floats(0.2, 1.0))
def test_a_tuned_setting_fits_its_budget(tensors, share) -> None:
    link = Link(bytes_per_s=1e8)
    budget = int(share * sum(tensor.num_bytes for tensor in tensors))

    try:
        setting = tune_swap(tensors, budget_bytes=budget, outward=link, inward=link)
    except PlanError:
        return

    cost = swap_cost(tensors, setting, outward=link, inward=link)
    assert cost.peak_bytes <= budget


@pytest.mark.parametrize(
    "values", [{"num_tensors": -2}, {"lower": -1}, {"lower": 3, "upper": 2}]
)
def test_a_setting_that_means_nothing_is_refused(values) -> None:
    with pytest.raises(PlanError, match="is no swap"):
        SwapSetting(**values)


# Cache -------------------------------------------------------------------------------


def test_the_hit_rate_of_the_prototype_is_predicted() -> None:
    frequencies = [1 / rank**1.05 for rank in range(1, 100_001)]

    cost = cache_cost(
        frequencies,
        num_cached=5_000,
        row_bytes=64,
        ids_per_batch=2048,
        outward=FAST,
        inward=FAST,
    )

    # S17's prototype sorted by the counts of its own 200 batches, which fit them better
    # than the true distribution does: 0.806, and 158,208 rows.
    assert cost.hit_rate == pytest.approx(0.806, rel=0.02)
    assert 200 * cost.rows_moved == pytest.approx(158_208, rel=0.05)
