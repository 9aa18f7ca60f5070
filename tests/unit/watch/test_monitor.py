import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from tests.unit.watch.widgets import listen
from workbench.errors import StoreError
from workbench.notebook.follow import Follower
from workbench.notebook.monitor import LiveMonitor


def await_true(condition, within_s=20):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def monitor(session, run):
    monitor = LiveMonitor(session)
    yield monitor
    monitor.close()


def test_what_happens_is_pushed_as_it_comes(session, run, monitor):
    sent = listen(monitor.widget)
    monitor.widget.greeted = True
    await_true(lambda: monitor._follower.shown().live)

    for step in range(1, 4):
        session.step(step, 2)
        session.recorder.flush()
    await_true(lambda: sum("loss" in m["series"] for m, _ in sent) >= 3)

    numbers = [m["seq"] for m, _ in sent if m["k"] == "append"]
    assert numbers == sorted(set(numbers))


def test_until_a_view_asks_it_is_sent_everything(session, run, monitor):
    sent = listen(monitor.widget)

    session.step(1, 2)
    await_true(lambda: any(m["k"] == "snapshot" for m, _ in sent))


def test_a_view_that_says_hello_gets_a_snapshot(session, run, monitor):
    session.step(1, 2)
    session.recorder.flush()
    await_true(lambda: "loss" in monitor._snapshot().series)
    sent = listen(monitor.widget)

    monitor.widget._on_message(None, {"k": "hello"}, [])

    assert sent[0][0]["k"] == "snapshot"
    assert "loss" in sent[0][0]["series"]


def test_the_monitor_of_a_session_goes_on_to_its_next_run(session, run, monitor):
    session.end()

    later = session.begin(name="later", num_ranks=2)

    await_true(lambda: monitor.run == later)


def test_a_finished_run_is_shown_from_the_store(session, run):
    session.step(3, 2)
    session.end()

    monitor = LiveMonitor(run)
    try:
        assert monitor._snapshot().series["loss"][0] == [3]
        assert "finished" in str(monitor)
        await_true(lambda: not monitor._follower._thread.is_alive())
    finally:
        monitor.close()


def test_a_run_is_followed_by_its_id_through_the_feed(session, run):
    follower = Follower(run)
    heard = threading.Event()
    follower.start(lambda changed: heard.set() if changed else None)
    try:
        session.step(1, 2)
        assert heard.wait(20)
        assert follower.shown().live
    finally:
        follower.close()


def test_the_end_of_a_run_is_heard_of(session, run):
    follower = Follower(run)
    follower.start(lambda changed: None)
    try:
        session.end("failed")
        await_true(lambda: follower.shown().status == "failed")
    finally:
        follower.close()


def test_closing_frees_the_thread(session, run):
    before = threading.active_count()
    monitor = LiveMonitor(session)

    monitor.close()

    assert threading.active_count() == before


def test_an_unknown_run_is_refused(session, run):
    with pytest.raises(StoreError, match="no run 'nope'"):
        LiveMonitor("nope")


def test_the_run_is_told_in_words_where_widgets_are_not_shown(monitor):
    bundle = monitor._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle

    assert data["text/plain"].startswith("run '<b>run</b>'")


def test_the_stop_button_stops_the_session_off_the_cells_thread(session, run):
    stopped = threading.Event()
    session.interrupt = stopped.set
    monitor = LiveMonitor(session)
    try:
        assert monitor.widget.can_stop
        monitor.widget._on_message(None, {"k": "stop"}, [])
        assert stopped.wait(10)
    finally:
        monitor.close()


def test_a_viewer_of_a_run_cannot_stop_it(session, run):
    monitor = LiveMonitor(run)
    try:
        assert not monitor.widget.can_stop
        monitor.widget._on_message(None, {"k": "stop"}, [])
    finally:
        monitor.close()


def test_a_run_whose_recorder_died_is_said_to_be_lost(session, run):
    silent_s = time.time() - 60
    dead = replace(
        session.store.run(run),
        id="dead",
        recorder="gone",
        started_s=silent_s,
        heartbeat_s=silent_s,
    )
    session.store.add_run(dead)

    monitor = LiveMonitor("dead")
    try:
        await_true(lambda: not monitor._follower._thread.is_alive())
        assert "lost: its recorder went silent" in str(monitor)
    finally:
        monitor.close()


def test_a_viewer_loads_neither_torch_nor_dask():
    code = (
        "import sys, workbench.notebook.dashboard;"
        "print(*(m for m in ('torch', 'dask', 'distributed') if m in sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == ""
