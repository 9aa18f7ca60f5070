"""Cells on two ranks: names, output, results, errors."""

import contextlib
import io

import pytest

from workbench.errors import RankError, SessionError
from workbench.session.view import TextView

pytestmark = pytest.mark.cluster


class Recording(TextView):
    """Keeps what is displayed, beside the text."""

    def __init__(self, ranks=(0, 1)):
        self.out = io.StringIO()
        self.shown = []
        # Long enough for a loaded machine: the lines of one cell come together.
        super().__init__(ranks, self.out, self.out, grace_s=5.0)

    def display(self, message):
        self.shown.append((message.rank, message.data))


def output(session, code, **options):
    view = Recording()
    session.run_cell(code, view=view, **options)
    return view.out.getvalue()


def test_ranks_know_themselves(session):
    result = session.run_cell("(rank, world_size, str(device), layout.dp, plan)")

    assert result.values == [(0, 2, "cpu", 2, None), (1, 2, "cpu", 2, None)]


def test_names_persist_from_cell_to_cell(session):
    session.run_cell("kept = rank + 40")

    assert session.run_cell("kept").values == [40, 41]


def test_a_collective_gives_the_same_everywhere(session):
    result = session.run_cell(
        "x = torch.ones(2) * rank; dist.all_reduce(x); x.tolist()"
    )

    assert result.values == [[1.0, 1.0], [1.0, 1.0]]


def test_a_cell_runs_on_chosen_ranks_only(session):
    result = session.run_cell("rank", ranks=1)

    assert [each.rank for each in result.ranks] == [1]
    assert result[1] == 1


def test_identical_lines_are_shown_once(session):
    text = output(session, "print('same'); print('rank', rank)")

    assert text.splitlines() == [
        "ranks 0-1 | same",
        "rank 0    | rank 0",
        "rank 1    | rank 1",
    ]


def test_native_output_and_stderr_arrive_too(session):
    text = output(session, "os.write(1, b'raw\\n'); print('err', file=sys.stderr)")

    assert "ranks 0-1 | raw" in text
    assert "ranks 0-1 | err" in text


def test_top_level_await_works(session):
    result = session.run_cell("import asyncio\nawait asyncio.sleep(0, rank)")

    assert result.values == [0, 1]


def test_rich_results_come_back_by_mime_type(session):
    view = Recording()

    session.run_cell(
        "from IPython.display import HTML, display\ndisplay(HTML(f'<b>{rank}</b>'))",
        view=view,
    )

    assert sorted((rank, data["text/html"]) for rank, data in view.shown) == [
        (0, "<b>0</b>"),
        (1, "<b>1</b>"),
    ]


def test_a_value_that_cannot_travel_still_has_its_text(session):
    result = session.run_cell("lambda: 1", ranks=0)

    assert "function" in result.ranks[0].text
    with pytest.raises(SessionError, match="cannot be pickled"):
        result[0]


def test_output_beyond_the_cap_is_announced_and_whole_in_the_log(session):
    text = output(session, "for n in range(30_000): print('line', n)", ranks=0)

    assert "lines left out here" in text
    assert str(session.log) in text
    logged = [
        line.split(" | ")[1]
        for line in session.log.read_text().splitlines()
        if " | line " in line
    ]
    assert logged[-30_000:] == [f"line {n}" for n in range(30_000)]


def test_much_stderr_blocks_nobody(session):
    session.run_cell("sys.stderr.write('x' * 200_000 + '\\n')", view=Recording())


def test_an_error_names_the_rank_and_shows_the_cell_s_lines(session):
    with pytest.raises(RankError) as caught:
        session.run_cell("value = 1\nif rank == 1: raise ValueError('bad')")

    assert caught.value.ranks == (1,)
    assert str(caught.value).startswith("RankError: rank 1: ValueError: bad")
    assert "if rank == 1: raise ValueError('bad')" in str(caught.value)


def test_a_syntax_error_is_shown_once_for_all(session):
    with pytest.raises(RankError, match="SyntaxError") as caught:
        session.run_cell("def (")

    assert str(caught.value).count("def (") == 1


def test_sys_exit_ends_the_cell_and_not_the_rank(session):
    before = session.status().ranks

    with pytest.raises(RankError, match="SystemExit"):
        session.run_cell("sys.exit(3)", view=Recording())

    assert session.status().ranks == before


def test_ranks_that_do_not_exist_are_refused_with_the_numbers(session):
    with pytest.raises(RankError, match=r"\[7\] were asked for, there are 0 to 1"):
        session.run_cell("1", ranks=7)


def test_results_show_themselves_grouped(session):
    assert repr(session.run_cell("1 + 1")) == "ranks 0-1: 2"


def test_output_goes_to_stdout_by_default(session):
    caught = io.StringIO()

    with contextlib.redirect_stdout(caught):
        session.run_cell("print('plain')", ranks=1)

    assert caught.getvalue() == "rank 1 | plain\n"
