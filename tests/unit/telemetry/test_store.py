import dataclasses
import sqlite3

import pytest

from workbench.errors import StoreError
from workbench.telemetry import Run, RunStore

RUN = Run(
    id="r",
    name="<b>quick</b>",
    status="running",
    started_s=100.0,
    ended_s=None,
    heartbeat_s=100.0,
    host="here",
    user="ada",
    num_ranks=2,
    layout_toml="dp = 2\n",
    plan_json="{}",
    dropped=0,
    recorder="abc",
)


def test_a_run_comes_back_as_it_was(store):
    store.add_run(RUN)

    assert store.run("r") == RUN
    assert store.run() == RUN


def test_events_come_back_in_order_of_arrival(store, metric, sample):
    events = [metric(2, loss=1.0), sample(5.0, heap_bytes=3), metric(1, loss=2.0)]

    store.add_events(events)

    assert list(store.events("r")) == events
    assert list(store.events("r", kind="metric")) == [events[0], events[2]]


def test_more_events_than_a_chunk_are_all_read(store, metric):
    store.add_events([metric(step) for step in range(12_345)])

    steps = [event.payload["step"] for event in store.events("r")]

    assert steps == list(range(12_345))


def test_drops_and_heartbeat_are_written_with_the_events(store):
    store.add_run(RUN)

    store.add_events([], dropped={"r": 3}, alive=["r"], now_s=107.0)

    changed = dataclasses.replace(RUN, dropped=3, heartbeat_s=107.0)
    assert store.run("r") == changed


def test_a_silent_run_counts_as_lost():
    assert RUN.status_at(now_s=105.0) == "running"
    assert RUN.status_at(now_s=120.0) == "lost"


def test_an_ended_run_is_never_lost(store):
    store.add_run(RUN)
    store.end_run("r", status="finished", ended_s=110.0)

    assert store.run("r").status_at(now_s=999.0) == "finished"


def test_runs_are_listed_newest_first(store):
    store.add_run(RUN)
    store.add_run(dataclasses.replace(RUN, id="s", started_s=200.0))

    assert [run.id for run in store.runs()] == ["s", "r"]


def test_a_viewer_sees_what_the_writer_commits(store, metric):
    store.add_run(RUN)

    with RunStore(store.path, read_only=True) as viewer:
        store.add_events([metric(1)])

        assert len(list(viewer.events("r"))) == 1


def test_a_viewer_cannot_write(store):
    with (
        RunStore(store.path, read_only=True) as viewer,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        viewer.add_run(RUN)


def test_a_viewer_can_open_a_store_that_nobody_writes(tmp_path):
    with RunStore(tmp_path / "s.db") as writer:
        writer.add_run(RUN)

    with RunStore(tmp_path / "s.db", read_only=True) as viewer:
        assert viewer.run("r") == RUN


def test_a_missing_store_is_refused_with_a_way_out(tmp_path):
    with pytest.raises(StoreError, match="no run store") as caught:
        RunStore(tmp_path / "none.db", read_only=True)

    assert "wb.launch" in str(caught.value)


def test_a_newer_store_is_refused(tmp_path):
    path = tmp_path / "new.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(StoreError, match="version 99"):
        RunStore(path)


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "text.db"
    path.write_text("not a database, but long enough to look at" * 20)

    with pytest.raises(StoreError, match="cannot be opened"):
        RunStore(path)


def test_an_unknown_run_is_refused_with_the_newest_ids(store):
    store.add_run(RUN)

    with pytest.raises(StoreError, match="no run 'x'") as caught:
        store.run("x")

    assert "the newest are r" in str(caught.value)


def test_the_store_is_private(store):
    assert store.path.stat().st_mode & 0o077 == 0


def test_the_newest_metrics_are_put_together_from_the_last_reports(store, metric):
    store.add_events([metric(1, loss=3.0), metric(2, loss=2.0), metric(2, val_loss=5)])

    assert store.newest_metrics("r") == {"step": 2, "loss": 2.0, "val_loss": 5}
    assert store.newest_metrics("other") == {}
