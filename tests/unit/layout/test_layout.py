"""Layouts are valid once built; ranks and coordinates are one-to-one."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import LayoutError
from workbench.hardware import hardware
from workbench.layout import Axis, Layout
from workbench.layout.check import check_batch, check_hardware, check_model, check_ranks
from workbench.layout.shards import shard_rows
from workbench.model import model

DEGREES = st.integers(min_value=1, max_value=3)
ORDERS = st.permutations(list(Axis)).map(tuple)
LAYOUTS = st.builds(
    Layout, pp=DEGREES, dp=DEGREES, fsdp=DEGREES, cp=DEGREES, tp=DEGREES, order=ORDERS
)


@given(LAYOUTS)
def test_rank_and_coordinates_are_inverse(layout):
    ranks = range(layout.num_ranks)

    assert [layout.rank_at(layout.coordinates(rank)) for rank in ranks] == list(ranks)


@given(LAYOUTS, st.sampled_from(Axis))
def test_groups_of_an_axis_hold_every_rank_once(layout, axis):
    groups = layout.groups(axis)

    assert sorted(r for group in groups for r in group) == list(range(layout.num_ranks))
    assert {len(group) for group in groups} == {layout.degree(axis)}


@given(LAYOUTS, st.sampled_from(Axis))
def test_a_groups_ranks_differ_in_its_axis_alone(layout, axis):
    for group in layout.groups(axis):
        others = [dict(layout.coordinates(rank)) for rank in group]
        for place, coordinates in enumerate(others):
            assert coordinates.pop(axis, 0) == place
        assert all(o == others[0] for o in others)


@given(LAYOUTS)
def test_toml_gives_an_equal_layout_back(layout):
    assert Layout.from_toml(layout.to_toml()) == layout


@given(st.integers(1, 50), st.integers(1, 9))
def test_shards_hold_every_row_once(rows, degree):
    assert sum(shard_rows(rows, degree, c) for c in range(degree)) == rows


def test_the_innermost_axis_has_neighbouring_ranks():
    assert Layout(dp=2, tp=2).groups(Axis.TP) == ((0, 1), (2, 3))


def test_axes_are_those_above_one_in_order():
    order = tuple(reversed(Axis))

    assert Layout(dp=2, tp=2, order=order).axes() == (Axis.TP, Axis.DP)


def test_fill_takes_what_the_others_leave():
    assert Layout.fill("dp", tp=2, num_ranks=8) == Layout(dp=4, tp=2)


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"dp": 0}, "dp is 0", "dp=1"),
        ({"dp": 2.0}, "dp is 2.0", "dp=1"),
        ({"dp": True}, "dp is True", "dp=1"),
        ({"num_microbatches": -1}, "num_microbatches is -1", "num_microbatches=1"),
        ({"sp": True}, "tp is 1", "tp=2"),
        ({"zero": 4}, "zero is 4", "0, 1, 2, 3"),
        ({"precision": "bf8"}, "precision is 'bf8'", "bf16"),
        ({"schedule": "1f2b"}, "schedule is '1f2b'", "1f1b"),
        ({"offload": ("disk",)}, "offload holds 'disk'", "optimizer"),
        ({"chunks": 2}, "pp is 1", "pp=2"),
        ({"pp": 2, "chunks": 2}, "1f1b has one chunk", "interleaved"),
        ({"pp": 2, "schedule": "interleaved"}, "needs 2 or more", "chunks=2"),
        ({"pp": 2, "schedule": "zb-v"}, "zb-v puts 2 chunks", "chunks=2"),
        (
            {"pp": 4, "schedule": "interleaved", "chunks": 2, "num_microbatches": 6},
            "6 to divide by pp 4",
            "num_microbatches=8",
        ),
        ({"order": (Axis.DP, Axis.DP)}, "twice", "each once"),
        ({"tp": 2, "order": (Axis.DP,)}, "leaves out tp", "dp, tp"),
    ],
)
def test_a_contradiction_is_refused_with_a_way_out(values, message, hint):
    with pytest.raises(LayoutError) as caught:
        Layout(**values)

    assert message in caught.value.message
    assert hint in caught.value.hint


def test_fill_refuses_ranks_that_do_not_divide():
    with pytest.raises(LayoutError) as caught:
        Layout.fill("dp", tp=4, num_ranks=6)

    assert caught.value.message == "tp 4 = 4 does not divide 6 ranks"
    assert caught.value.hint == "try num_ranks=4"


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_outside_is_refused(rank):
    with pytest.raises(LayoutError, match="ranks 0 to 3"):
        Layout(dp=4).coordinates(rank)


def test_more_ranks_than_devices_are_refused_with_a_degree_that_fits():
    with pytest.raises(LayoutError) as caught:
        check_hardware(Layout(dp=8, tp=2), hardware("h100"))

    assert "needs 16 ranks, there are 8 devices" in caught.value.message
    assert caught.value.hint == "try dp=4"


def test_a_way_out_is_named_where_one_degree_cannot_do():
    with pytest.raises(LayoutError) as caught:
        check_ranks(Layout(dp=2, tp=2), 1)

    assert caught.value.hint == "lower dp or tp"


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"tp": 3}, "num_heads 4 does not divide by tp 3", "tp=2"),
        ({"ep": 2}, "needs a model with num_experts", "ep=1"),
        ({"cp": 3}, "tokens_per_sample 128 does not divide by cp 3", "cp=2"),
        ({"pp": 5}, "5 stages, the model has 4 layers", "pp=4"),
        ({"cp": 8, "context": "ulysses"}, "num_kv_heads 4", "cp=4"),
    ],
)
def test_a_layout_that_the_model_does_not_divide_by_is_refused(values, message, hint):
    with pytest.raises(LayoutError) as caught:
        check_model(Layout(**values), model("gpt"))

    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_batch_that_does_not_divide_is_refused_with_one_that_does():
    with pytest.raises(LayoutError) as caught:
        check_batch(Layout(dp=2, num_microbatches=3), 8)

    assert "2 data ranks x 3 micro-batches = 6" in caught.value.message
    assert caught.value.hint == "try global_batch=12"


def test_every_order_counts_each_rank_once():
    for order in permutations((Axis.DP, Axis.TP, Axis.PP)):
        layout = Layout(dp=2, tp=2, pp=2, order=order)
        assert len({tuple(layout.coordinates(r).items()) for r in range(8)}) == 8
