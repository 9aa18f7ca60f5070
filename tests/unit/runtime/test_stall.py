"""A silent cell is explained: who waits in what, who has not come."""

from workbench.protocol.messages import Waiting
from workbench.runtime.stall import Position, explain_stall

CALL = Waiting(
    op="all_reduce",
    group="dp (group 1)",
    sequence=9,
    shape="(4,) float32",
    since_s=30.0,
)


def test_those_who_wait_and_those_who_have_not_come_are_named():
    positions = [
        Position(rank=0, waiting=(CALL,), line="line 2: dist.all_reduce(x)"),
        Position(rank=1, waiting=(), line="line 1: time.sleep(600)"),
        Position(rank=2, waiting=(CALL,), line="line 2: dist.all_reduce(x)"),
    ]

    assert explain_stall(positions, 20.0).splitlines() == [
        "no progress for 20.0 s:",
        "  ranks 0,2: waits in all_reduce of dp (group 1), call 9, (4,) float32 "
        "at line 2: dist.all_reduce(x)",
        "  rank 1: runs at line 1: time.sleep(600)",
    ]


def test_a_cell_in_which_everyone_computes_is_left_alone():
    positions = [Position(rank=0, waiting=(), line="line 1: work()")]

    assert explain_stall(positions, 20.0) == ""
