"""Lines of ranks: grouped where identical, in order, none lost."""

from hypothesis import given
from hypothesis import strategies as st

from workbench.session.grouper import GRACE_S, Grouper, Line


def line(ranks, text, **more):
    return Line(ranks=ranks, stream="stdout", text=text, **more)


def test_identical_lines_are_drawn_together():
    grouper = Grouper((0, 1))
    grouper.add(0, "stdout", "a\nb\n", 0.0)
    grouper.add(1, "stdout", "a\nb\n", 0.001)

    assert grouper.take(0.001) == [line((0, 1), "a"), line((0, 1), "b")]


def test_a_line_waits_for_the_other_ranks_only_so_long():
    grouper = Grouper((0, 1))
    grouper.add(0, "stdout", "a\n", 0.0)

    assert grouper.take(GRACE_S / 2) == []
    assert grouper.take(GRACE_S) == [line((0,), "a")]


def test_common_lines_wait_past_a_rank_s_own():
    grouper = Grouper((0, 1))
    grouper.add(0, "stdout", "same\n", 0.0)
    grouper.add(1, "stdout", "mine\nsame\n", 0.0)

    assert grouper.take(0.0, final=True) == [line((1,), "mine"), line((0, 1), "same")]


def test_only_the_newest_state_of_a_bar_is_shown():
    grouper = Grouper((0,))
    grouper.add(0, "stdout", "\r1%\r2%", 1.0)

    assert grouper.take(1.0) == [line((0,), "2%", passing=True)]


def test_bars_of_many_ranks_are_one():
    grouper = Grouper((0, 1))
    grouper.add(0, "stdout", "\r10%", 1.0)
    grouper.add(1, "stdout", "\r12%", 1.0)

    assert grouper.take(1.0) == [line((0,), "10%", passing=True)]


def test_a_half_line_becomes_a_line_at_the_end():
    grouper = Grouper((0,))
    grouper.add(0, "stdout", "no newline", 0.0)

    assert grouper.take(0.0, final=True) == [line((0,), "no newline")]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["a\n", "b\n", "c\nd\n"])),
        max_size=30,
    )
)
def test_every_rank_s_lines_come_out_once_and_in_order(prints):
    grouper = Grouper((0, 1, 2))
    shown = []
    for at_s, (rank, text) in enumerate(prints):
        grouper.add(rank, "stdout", text, float(at_s))
        shown += grouper.take(float(at_s))
    shown += grouper.take(99.0, final=True)

    for rank in range(3):
        printed = "".join(text for r, text in prints if r == rank)
        seen = "".join(f"{one.text}\n" for one in shown if rank in one.ranks)
        assert seen == printed
