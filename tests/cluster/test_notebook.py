"""The magics in a real kernel, as nbclient runs notebooks."""

import json
from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = [
    pytest.mark.cluster,
    # jupyter_client says that its own TCP is not encrypted; nbclient forgets a loop.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

CELLS = {
    "load": "%load_ext workbench",
    "none": "%%distributed\n1",
    "up": "%distributed up -n 2 --oversubscribe",
    "print": "%%distributed\nif rank == 0: print('hello from', world_size)\nrank * 2",
    "ranks": "%%distributed --ranks 1\nrank",
    "figure": (
        "%%distributed --ranks 0\nfrom IPython.display import HTML, display\n"
        "display(HTML('<b>bold</b>'))"
    ),
    "where": "%%distributed --where dp=last\nrank",
    "out": "%%distributed --out kept\nrank + 5",
    "kept": "kept.values",
    "local": "%%distributed --local\nhere = 6 * 7",
    "here": "here",
    "detach": "%%distributed --detach --out handle\nimport time; time.sleep(0.5); rank",
    "detached": "handle.done, (await handle).values, handle.done",
    "typo": "%%distributed --rank 1 --nonsense\n1",
    "raise": "%%distributed\nif rank == 1: raise ValueError('bad')\nimport time",
    "awake": (
        "import asyncio, time\n"
        "beats = []\n"
        "async def beat():\n"
        "    while True:\n"
        "        beats.append(time.monotonic()); await asyncio.sleep(0.05)\n"
        "task = asyncio.ensure_future(beat())"
    ),
    "long": "%%distributed\nimport time; time.sleep(1)",
    "beats": "len(beats) > 5",
    "complete": (
        "from IPython.core.completer import provisionalcompleter\n"
        "with provisionalcompleter():\n"
        "    found = list(get_ipython().Completer.completions("
        "'%%distributed\\nworld_si', 22))\n"
        "[each.text for each in found]"
    ),
    "default": "%distributed default on",
    "plain": "rank",
    "off": "%distributed default off",
    "status": "%distributed status",
    "down": "%distributed down",
}


@pytest.fixture(scope="module")
def outputs():
    """Run all cells in one kernel; return what each printed, showed and raised."""
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        notebook, timeout=50, kernel_name="python3", allow_errors=True
    )
    client.execute()
    return dict(zip(CELLS, [cell.outputs for cell in notebook.cells], strict=True))


def text(outputs):
    return "\n".join(
        output.get("text")
        or output.get("data", {}).get("text/plain")
        or "\n".join(output.get("traceback", []))
        for output in outputs
    )


def test_a_cell_without_a_session_says_how_to_start_one(outputs):
    assert "%distributed up -n 2" in text(outputs["none"])


def test_up_shows_the_session(outputs):
    (shown,) = outputs["up"]

    assert "ranks 0-1, gloo on cpu, open" in shown["data"]["text/plain"]
    assert "<table>" in shown["data"]["text/html"]


def test_output_and_results_go_to_the_cell(outputs):
    assert text(outputs["print"]) == "rank 0    | hello from 2\n\nrank 0: 0\nrank 1: 2"


def test_ranks_can_be_chosen(outputs):
    assert text(outputs["ranks"]) == "rank 1: 1"


def test_figures_and_html_are_shown_under_their_rank(outputs):
    label, shown = outputs["figure"]

    assert label["text"] == "rank 0:\n"
    assert shown["data"]["text/html"] == "<b>bold</b>"


def test_ranks_can_be_chosen_by_axis(outputs):
    assert text(outputs["where"]) == "rank 1: 1"


def test_a_result_can_be_kept_under_a_name(outputs):
    assert (text(outputs["out"]), text(outputs["kept"])) == ("", "[5, 6]")


def test_a_cell_can_run_here_too(outputs):
    assert text(outputs["here"]) == "42"


def test_a_detached_cell_gives_a_handle_at_once(outputs):
    assert "<CellHandle: running>" in text(outputs["detach"])
    assert text(outputs["detached"]) == "(False, [0, 1], True)"


def test_a_wrong_flag_is_one_line(outputs):
    assert "unrecognized arguments: --nonsense" in text(outputs["typo"])


def test_an_error_shows_the_rank_s_cell_and_none_of_our_frames(outputs):
    (error,) = outputs["raise"]

    assert error["ename"] == "CellError"
    assert "rank 1: ValueError: bad" in error["traceback"][0]
    assert "workbench/" not in "\n".join(error["traceback"])


def test_the_notebook_stays_awake_while_a_cell_runs(outputs):
    assert text(outputs["beats"]) == "True"


def test_completion_comes_from_rank_0(outputs):
    assert "world_size" in text(outputs["complete"])


def test_plain_cells_go_to_the_ranks_by_default_when_asked(outputs):
    assert text(outputs["plain"]) == "rank 0: 0\nrank 1: 1"


def test_status_shows_each_rank(outputs):
    assert "rank 1: ready, cpu, pid" in text(outputs["status"])


def test_down_is_silent(outputs):
    assert outputs["down"] == []


@pytest.mark.parametrize("name", ["workbench", "workbench-attach"])
def test_kernelspecs_load_an_extension_that_exists(name):
    spec = json.loads(Path(f"kernels_cfg/{name}/kernel.json").read_text())
    (extension,) = [a.removeprefix("--ext=") for a in spec["argv"] if "--ext=" in a]

    module = __import__(extension, fromlist=["load_ipython_extension"])

    assert callable(module.load_ipython_extension)
