"""Notebook 02 plans without a GPU and shows the working."""

import nbformat
import pytest
from nbclient import NotebookClient

from tests.browser.tools import ROOT, environment

pytestmark = pytest.mark.timeout(300)


# jupyter_client warns of local TCP, which is what nbclient uses.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_it_searches_and_explains(tmp_path, monkeypatch):
    for name, value in environment(tmp_path / "jupyter", tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ROOT / "notebooks" / "02-plan-a-70b.ipynb", 4)

    done = NotebookClient(notebook, timeout=240).execute()

    said = "\n".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for cell in done.cells
        for output in cell.get("outputs", [])
    )
    assert "need more memory than a rank has" in said
    assert "micro-batches in flight" in said
    assert "[layout]" in said
