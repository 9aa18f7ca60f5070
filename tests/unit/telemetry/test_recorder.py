import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from workbench.errors import StoreError
from workbench.telemetry import RunStore, encode
from workbench.telemetry import recorder as recorder_module
from workbench.telemetry.derive import Measured, replay
from workbench.telemetry.recorder import Recorder


@pytest.fixture
def recorder(store):
    with Recorder(store) as recorder:
        yield recorder


def await_true(condition, within_s=20):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_what_is_added_reaches_the_store_by_itself(recorder, store, metric):
    run = recorder.begin_run(name="a", num_ranks=2)

    recorder.add(encode([metric(1, run=run, loss=5.0)]))

    await_true(lambda: len(list(store.events(run))) == 1)


def test_a_commit_is_hurried_where_one_is_asked_for(store, metric, monkeypatch):
    monkeypatch.setattr(recorder_module, "COMMIT_S", 3600.0)
    with Recorder(store) as recorder:
        run = recorder.begin_run(name="a", num_ranks=1)
        recorder.add(encode([metric(1, run=run)]))

        recorder.commit_soon()

        await_true(lambda: len(list(store.events(run))) == 1)


def test_ending_a_run_writes_what_is_left(recorder, store, metric):
    run = recorder.begin_run(name="a", num_ranks=1)
    recorder.add(encode([metric(1, run=run)]))

    recorder.end_run(run, status="failed")

    assert store.run(run).status == "failed"
    assert len(list(store.events(run))) == 1


def test_closing_ends_open_runs_as_interrupted(store):
    with Recorder(store) as recorder:
        run = recorder.begin_run(name="a", num_ranks=1)

    assert store.run(run).status == "interrupted"


def test_drops_on_the_way_are_counted_for_their_run(recorder, store, metric):
    run = recorder.begin_run(name="a", num_ranks=1)

    recorder.add(encode([metric(1, run=run)], 7))
    recorder.end_run(run)

    assert store.run(run).dropped == 7


def test_a_flood_is_bounded_and_counted(recorder, store, metric, monkeypatch):
    run = recorder.begin_run(name="a", num_ranks=1)
    batch = encode([metric(1, run=run)] * 10)
    monkeypatch.setattr(recorder_module, "MAX_PENDING_BYTES", len(batch))

    with recorder._lock:  # the thread cannot take anything meanwhile
        recorder.add(batch)
        recorder.add(batch)
    recorder.end_run(run)

    assert len(list(store.events(run))) == 10
    assert store.run(run).dropped == 10


def test_what_is_no_batch_is_refused_where_it_is_added(recorder):
    with pytest.raises(StoreError):
        recorder.add(b"nonsense")


def test_a_full_disk_is_said_and_nothing_is_lost(recorder, store, metric, monkeypatch):
    run = recorder.begin_run(name="a", num_ranks=1)
    write = store.add_events
    monkeypatch.setattr(store, "add_events", _full_disk)
    recorder.add(encode([metric(1, run=run)]))

    await_true(lambda: "recording stopped" in recorder.snapshot(run)["recording"])
    monkeypatch.setattr(store, "add_events", write)

    await_true(lambda: len(list(store.events(run))) == 1)
    assert recorder.snapshot(run)["recording"] == ""


def _full_disk(*args, **kwargs):
    raise sqlite3.OperationalError("database or disk is full")


def test_changes_carry_rising_numbers(recorder, metric):
    seen = []
    unsubscribe = recorder.subscribe(seen.append)
    run = recorder.begin_run(name="a", num_ranks=1)

    for step in range(3):
        recorder.add(encode([metric(step, run=run, loss=1.0)]))
        recorder.flush()
    unsubscribe()

    numbers = [message["seq"] for message in seen if message["k"] == "delta"]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 3


def test_what_viewers_saw_is_what_the_store_replays(recorder, store, metric, sample):
    run = recorder.begin_run(name="a", num_ranks=2)
    start_s = recorder._runs[run].started_s
    for step in range(50):
        recorder.add(encode([metric(step, run=run, loss=5 - step / 10)]))
        rank = step % 2
        recorder.add(
            encode([sample(start_s + step / 9, run=run, rank=rank, heap_bytes=step)])
        )
    recorder.flush()
    seen = recorder.snapshot(run)["picture"]

    recorder.end_run(run)

    assert replay(store, run).snapshot() == seen
    assert Measured.from_store(store, run).losses == (5.0, pytest.approx(0.1))


CHILD = """
import sys, time
from workbench.telemetry import Event, RunStore, encode
from workbench.telemetry.recorder import Recorder
recorder = Recorder(RunStore(sys.argv[1]))
run = recorder.begin_run(name="doomed", num_ranks=1)
step = 0
while True:
    step += 1
    recorder.add(encode([Event(kind="metric", rank=0, run=run, cause="", payload={"step": step})]))
    print(time.time(), flush=True)
    time.sleep(0.01)
"""


def test_kill_9_costs_at_most_a_second(tmp_path):
    path = tmp_path / "killed.db"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        for _ in range(200):
            last_s = float(child.stdout.readline())
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()

    with RunStore(path, read_only=True) as store:
        (run,) = store.runs()
        newest = list(store.events(run.id))[-1]
        assert newest.wall_s > last_s - 1.0
        assert run.status_at(now_s=last_s + 60) == "lost"
