"""The quickstart as a person runs it in JupyterLab, with fewer steps."""

import os
from pathlib import Path

import nbformat

from tests.browser import tools
from tests.browser.lab import open_file, run_all, wait_for_widget
from workbench.telemetry import RunStore

SHORTER = {"num_steps=300": "num_steps=40", "eval_every=100": "eval_every=20"}
SCREENSHOTS = tools.ROOT / "widgets" / "screenshots"


def shortened(folder):
    """Copy the quickstart, cut to as many steps as are needed to see it move."""
    notebook = nbformat.read(tools.ROOT / "notebooks" / "01-quickstart.ipynb", 4)
    for cell in notebook.cells:
        for long, short in SHORTER.items():
            cell.source = cell.source.replace(long, short)
    assert any("num_steps=40" in cell.source for cell in notebook.cells)
    path = folder / "quickstart.ipynb"
    nbformat.write(notebook, path)
    return path


def test_the_quickstart_runs_and_its_monitor_moves(page, lab, notebooks, home):
    path = shortened(notebooks)
    if "WORKBENCH_SCREENSHOTS" in os.environ:
        page.set_viewport_size({"width": 1560, "height": 1900})
    open_file(page, lab, path)

    run_all(page)
    wait_for_widget(page, ".wb-monitor")
    states, pictured = [], False
    while page.evaluate("window.ran") is None:
        state = page.evaluate(tools.STATE)
        if state and (not states or state["series"] != states[-1]["series"]):
            states.append(state)
        if not pictured and len(states) > 20:
            picture(page)
            pictured = True
        page.wait_for_timeout(100)
    states.append(page.evaluate(tools.STATE))

    assert page.evaluate("window.ran") is True
    losses = [s["series"]["loss"] for s in states if s and "loss" in s["series"]]
    assert len({points["x"][-1] for points in losses}) > 5
    for points in losses:
        assert all(a < b for a, b in zip(points["x"], points["x"][1:], strict=False))
    stored = newest_run(home)
    assert losses[-1]["x"][-1] == stored[-1]["step"] == 40
    assert losses[-1]["y"][-1] == stored[-1]["loss"]
    page.locator(".wb-monitor").first.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    for inked, colours in page.evaluate(tools.INK):
        assert inked > 500
        assert colours > 3


def newest_run(home):
    """Return the training metrics of the newest run, from the store."""
    with RunStore(home / "runs.db", read_only=True) as store:
        payloads = [e.payload for e in store.events(store.run().id, kind="metric")]
    return [payload for payload in payloads if "loss" in payload]


def picture(page):
    """Keep a picture of the monitor for the README, where one is asked for."""
    if "WORKBENCH_SCREENSHOTS" not in os.environ:
        return
    SCREENSHOTS.mkdir(exist_ok=True)
    page.locator(".wb-monitor").first.screenshot(path=Path(SCREENSHOTS) / "monitor.png")
