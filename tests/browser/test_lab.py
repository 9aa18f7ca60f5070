"""The monitor in JupyterLab: it moves while a cell blocks the kernel."""

import nbformat

from tests.browser import tools
from tests.browser.lab import ASK, open_notebook, run_all, wait_for_widget

BLOCKING = [
    "import time\n"
    "import workbench as wb\n"
    "from workbench.testing.replay import FakeSession\n"
    "session = FakeSession()\n"
    "run = session.begin(name='lab', num_ranks=2)\n"
    "monitor = wb.monitor(session)\n"
    "monitor",
    "for step in range(1, 81):\n    session.step(step, 2)\n    time.sleep(0.1)",
    "session.end()\nsession.close()",
]


def test_the_monitor_moves_while_a_cell_blocks(page, lab, notebooks):
    open_notebook(page, lab, notebooks, BLOCKING)

    run_all(page)
    wait_for_widget(page, ".wb-monitor canvas")
    states = [page.evaluate(tools.STATE)]
    while states[-1]["panels"]["status"] == "running":
        page.wait_for_timeout(250)
        state = page.evaluate(tools.STATE)
        if state["series"] != states[-1]["series"]:
            states.append(state)

    assert len(states) > 5
    last = states[-1]["series"]["loss"]
    assert last["x"] == list(range(1, 81))
    for inked, colours in page.evaluate(tools.INK):
        assert inked > 500
        assert colours > 3


def test_where_widgets_are_not_shown_the_run_is_told_in_words(page, lab, notebooks):
    path = open_notebook(page, lab, notebooks, [BLOCKING[0], BLOCKING[2]])

    run_all(page)
    wait_for_widget(page, ".wb-monitor")
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_timeout(1000)

    outputs = nbformat.read(path, 4).cells[0].outputs
    assert any("run 'lab'" in output.data["text/plain"] for output in outputs)


FOLLOWING = (
    "import threading\n"
    "print(sum(t.name == 'workbench-follow' for t in threading.enumerate()))"
)


def test_running_the_cell_again_leaves_one_monitor(page, lab, notebooks):
    open_notebook(page, lab, notebooks, [BLOCKING[0]])
    run_all(page)
    wait_for_widget(page, ".wb-monitor")

    run_all(page)
    page.wait_for_function("window.ran === true", timeout=120_000)
    wait_for_widget(page, ".wb-monitor")

    assert int(page.evaluate(ASK, FOLLOWING)) == 1
    assert page.locator(".wb-monitor").count() == 1
