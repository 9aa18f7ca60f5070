"""The report of a failed cell names the guilty rank first, then the others."""

from workbench.protocol.messages import CellDone, ErrorReport, RankOutcome, Waiting
from workbench.session.report import error_of

WAITING = Waiting(
    op="all_reduce",
    group="world (group 0)",
    sequence=7,
    shape="(4,) float32",
    since_s=0.2,
)


def failed(rank, text="bad"):
    error = ErrorReport(
        name="ValueError", message=text, lines=("line 1", "ValueError: bad")
    )
    return RankOutcome(rank=rank, status="error", error=error)


def done(*outcomes, stop=""):
    return CellDone(cell="c", outcomes=outcomes, seconds=1.0, stop=stop)


def test_the_guilty_rank_comes_first_though_it_is_not_rank_0():
    freed = RankOutcome(rank=0, status="freed", waiting=(WAITING,))

    error = error_of(done(freed, failed(1)))

    assert error.ranks == (1,)
    assert str(error).splitlines() == [
        "RankError: rank 1: ValueError: bad",
        "rank 1:",
        "line 1",
        "ValueError: bad",
        "rank 0: was waiting in all_reduce of world (group 0), call 7, (4,) float32, "
        "for 200.0 ms; let go, its names are intact",
    ]


def test_the_same_exception_on_many_ranks_is_shown_once():
    text = str(error_of(done(failed(0), failed(1), failed(2))))

    assert text.count("line 1") == 1
    assert "ranks 0-2:" in text


def test_a_lost_rank_says_why_and_that_its_names_are_gone():
    lost = RankOutcome(rank=0, status="lost", cause="signal SIGKILL")

    text = str(error_of(done(lost)))

    assert "process ended (signal SIGKILL); its names are gone" in text


def test_a_stopped_cell_says_who_stopped_it():
    stopped = RankOutcome(rank=0, status="interrupted")

    text = str(error_of(done(stopped, stop="ran longer than its time-out of 1 s")))

    assert "was stopped: ran longer than its time-out of 1 s" in text
