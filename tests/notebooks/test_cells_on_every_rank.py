"""The notebook of cells runs headless; its three failures say who and where."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> dict[str, str]:
    """Run the notebook; return what each code cell put out, by its source."""
    home = tmp_path_factory.mktemp("home")
    executed = home / "executed.ipynb"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "workbench",
            "run",
            ROOT / "notebooks/03-cells-on-every-rank.ipynb",
            "--output",
            executed,
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"WORKBENCH_HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    notebook = nbformat.read(executed, as_version=4)
    return {
        cell.source: "\n".join(map(text_of, cell.outputs))
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def text_of(output) -> str:
    """Return an output's text, whichever kind it is."""
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.get("text") or output.get("data", {}).get("text/plain", "")


def output_of(cells: dict[str, str], part: str) -> str:
    (found,) = [output for source, output in cells.items() if part in source]
    return found


pytestmark = pytest.mark.timeout(180)


def test_both_ranks_are_heard_and_equal_results_are_shown_once(cells):
    output = output_of(cells, "hello from")

    # Lines are joined when they arrive together, which a busy machine may prevent.
    assert "hello from cpu" in output
    assert "I am rank 0" in output
    assert "I am rank 1" in output
    assert output.count("ranks 0-1: tensor([1., 1., 1.])") == 1


def test_the_rank_that_raised_is_named_and_where_the_other_waited(cells):
    report = output_of(cells, "on purpose")

    assert "rank 1" in report
    assert "ValueError: on purpose" in report
    assert "all_reduce" in report


def test_collectives_that_do_not_match_are_named(cells):
    report = output_of(cells, "torch.ones(4)")

    assert "rank 0" in report
    assert "rank 1" in report
    assert "3" in report
    assert "4" in report


def test_a_dead_rank_is_said_and_the_other_keeps_its_names(cells):
    assert "rank 0" in output_of(cells, "os._exit(3)")
    kept = output_of(cells, '"x" in globals()')
    assert "True" in kept
    assert "False" in kept


def test_a_detached_cell_is_awaited_later(cells):
    assert "True" in output_of(cells, "await handle")
    assert "step 4" in output_of(cells, "await handle")
