"""Notebook 05 reads what is in the store, and says so where there is nothing."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.browser.tools import ROOT, environment
from workbench.testing.replay import FakeSession

pytestmark = pytest.mark.timeout(300)


def run(tmp_path, monkeypatch):
    """Run the notebook in a folder of its own; return it with its outputs."""
    for name, value in environment(tmp_path / "jupyter", tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ROOT / "notebooks" / "05-watch-and-explain.ipynb", 4)
    folder = tmp_path / "work"
    folder.mkdir()
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=240, resources=resources).execute()


def texts(notebook):
    return "\n".join(
        output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )


# jupyter_client warns of local TCP, which is what nbclient uses.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_recorded_run_is_read_compared_and_exported(tmp_path, monkeypatch):
    import workbench as wb

    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    plan = wb.plan(
        wb.model("gpt", hidden=32), wb.hardware("a100"), wb.Layout(dp=2), global_batch=4
    )
    session = FakeSession()
    session.begin(name="recorded", num_ranks=2, plan_json=plan.to_json())
    for step in range(1, 20):
        session.step(step, 2)
    session.end()
    session.close()

    notebook = run(tmp_path, monkeypatch)

    said = texts(notebook)
    assert "run 'recorded'" in said
    assert "memory.weights" in said
    assert "metric.csv" in said
    assert (tmp_path / "work" / "exported-run" / "metric.csv").exists()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_without_runs_it_says_how_to_get_one(tmp_path, monkeypatch):
    with pytest.raises(CellExecutionError, match=r"wb\.launch"):
        run(tmp_path, monkeypatch)
