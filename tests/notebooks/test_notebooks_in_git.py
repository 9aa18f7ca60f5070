"""Notebooks in git run anywhere: plain kernel, extension loaded, short cells."""

from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.name)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_kernel_is_the_plain_one(notebook):
    assert notebook.metadata.kernelspec.name == "python3"


def test_first_cell_says_what_comes_and_how_long_it_takes(notebook):
    first = notebook.cells[0]

    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")


def test_cells_are_short(notebook):
    long = [c.source for c in notebook.cells if len(c.source.splitlines()) > 15]

    assert not long
