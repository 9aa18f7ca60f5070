"""`make demo` for real: the quickstart runs headless and keeps its promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "notebooks/01-quickstart.ipynb"
#: Marks every process of the run, so that leftovers are found whatever their parent.
MARK = "WORKBENCH_TEST_MARK"


def marked(mark: str) -> list[psutil.Process]:
    """Return the living processes that carry the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[str, nbformat.NotebookNode]:
    """Run what `make demo` runs; return what it printed and the executed notebook."""
    home = tmp_path_factory.mktemp("home")
    executed = home / "executed.ipynb"
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "run", QUICKSTART, "--output", executed],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"WORKBENCH_HOME": str(home), MARK: str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, alive = psutil.wait_procs(marked(str(home)), timeout=10)
    assert not alive, "processes left after the demo"
    return done.stdout, nbformat.read(executed, as_version=4)


def number(pattern: str, text: str) -> float:
    """Return the first number that a pattern captures."""
    found = re.search(pattern, text)
    assert found, f"{pattern} not in:\n{text}"
    return float(found.group(1))


pytestmark = pytest.mark.timeout(600)


def test_learns_below_the_bar_and_beats_a_bigram_model(demo):
    printed, _ = demo
    validation = number(r"validation loss ([\d.]+) nats per byte", printed)
    bigram = number(r"bigram model\s+([\d.]+) nats per byte", printed)

    assert validation < 2.2
    assert validation < bigram - 0.2


def test_says_which_files_it_trained_on(demo):
    printed, _ = demo

    assert re.search(r"digest|sha256", printed)


def test_ends_with_the_table_of_what_happened(demo):
    printed, _ = demo
    table = printed[-3000:]

    for word in ("ranks", "layout", "loss", "predicted", "measured", "wall", "report"):
        assert word in table, f"{word} missing in:\n{table}"


def test_report_is_one_file_without_outside_references(demo):
    printed, _ = demo
    path = Path(re.search(r"report\s*:?\s+(\S+\.html)", printed).group(1)).expanduser()
    page = path.read_text()

    assert "predicted" in page
    assert not re.search(r"""(?:src|href)=["']https?://""", page)


def test_no_cell_failed_and_the_monitor_was_shown(demo):
    _, notebook = demo
    outputs = [o for c in notebook.cells for o in c.get("outputs", [])]

    assert not [o for o in outputs if o.output_type == "error"]
    assert any(
        "application/vnd.jupyter.widget-view+json" in o.get("data", {}) for o in outputs
    )
