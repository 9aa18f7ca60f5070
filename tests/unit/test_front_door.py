"""`import workbench as wb` is instant, and so is looking around in it."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "dask", "distributed", "numpy", "IPython", "plotly", "anywidget")


def loaded_after(code: str) -> set[str]:
    """Return the heavy modules that a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport sys\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_loads_nothing_heavy():
    assert loaded_after("import workbench as wb") == set()


def test_tab_after_the_front_door_loads_neither_torch_nor_dask():
    tab = """
import sys
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_cell("import workbench as wb")
with provisionalcompleter():
    found = [c.text for c in shell.Completer.completions("wb.", 3)]
assert any("connect" in text for text in found), found
"""
    assert not loaded_after(tab) & {"torch", "dask", "distributed"}


@pytest.mark.parametrize("name", ["connect", "plan", "monitor", "model"])
def test_question_mark_loads_neither_torch_nor_dask(name):
    look = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_cell("import workbench as wb")
shell.run_line_magic("pinfo", "wb.{name}")
"""
    code = (
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n"
        + "".join(f"    {line}\n" for line in look.strip().splitlines())
    )
    assert not loaded_after(code) & {"torch", "dask", "distributed"}


def test_every_public_name_is_documented():
    import workbench as wb

    for name in wb.__all__:
        assert (getattr(wb, name).__doc__ or "").strip(), f"wb.{name} has no docstring"
