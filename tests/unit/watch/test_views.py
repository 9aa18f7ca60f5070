import dataclasses
import math

import pytest

from workbench.notebook import views
from workbench.notebook.planned import planned_of
from workbench.telemetry import Event, RunStore
from workbench.telemetry.derive import replay
from workbench.telemetry.paths import store_path


@pytest.fixture
def shown(session, run):
    for step in range(1, 6):
        session.step(step, 2)
    session.recorder.flush()
    return see(run)


def see(run, **changed):
    with RunStore(store_path(), read_only=True) as store:
        found = store.run(run)
        shown = views.Shown(
            run=found,
            picture=replay(store, run),
            planned=planned_of(found.plan_json),
            live=False,
            recording="",
            now_s=found.heartbeat_s,
        )
    return dataclasses.replace(shown, **changed)


def test_each_rank_has_its_planned_peak_beside_it(shown, plan):
    bars = views.memory_bars(shown)

    assert [bar["label"] for bar in bars] == ["rank 0", "rank 1"]
    assert [bar["planned"] for bar in bars] == [m.peak_bytes for m in plan.memory]
    assert all(bar["measured"] > 0 for bar in bars)
    assert all(bar["difference"].startswith("+") for bar in bars)


def test_parts_of_a_bar_add_up_to_its_peak(shown):
    for bar in views.memory_bars(shown):
        assert sum(part["bytes"] for part in bar["parts"]) == bar["measured"]
        assert sum(part["bytes"] for part in bar["plannedParts"]) == bar["planned"]


def test_traffic_that_was_planned_but_not_seen_is_said(shown):
    texts = {bar["label"]: bar["measuredText"] for bar in views.comm_bars(shown)}

    assert texts["all-reduce over dp"] == "4.0 MiB"
    assert texts["all-reduce over world"] == "not measured"


def test_traffic_as_planned_is_said_to_be_equal(session, run, plan):
    (planned,) = [c for c in plan.comm if c.axis == "dp" and c.phase == "step"]
    session.recorder.record(
        Event(
            kind="collective",
            rank=0,
            run=run,
            cause="step:1",
            payload={"op": planned.op, "axis": "dp", "sent_bytes": planned.sent_bytes},
        )
    )
    session.recorder.flush()

    (bar,) = [b for b in views.comm_bars(see(run)) if b["measured"] is not None]

    assert (bar["difference"], bar["tone"]) == ("equal to the plan", "good")


def test_without_a_plan_the_figures_stand_alone(session):
    run = session.begin(name="bare", num_ranks=1)
    session.step(1, 1)
    session.recorder.flush()

    shown = see(run)

    assert shown.planned is None
    assert {bar["plannedText"] for bar in views.comm_bars(shown)} == {"not planned"}


def test_a_run_without_events_says_not_measured(run):
    words = views.text(see(run))

    assert "loss: not measured" in words
    assert "running, nothing heard yet" in words


def test_a_silent_run_is_said_to_be_lost(shown):
    late = dataclasses.replace(shown, now_s=shown.now_s + 60)

    assert "lost: its recorder went silent 1 min 0 s ago" in views.text(late)


def test_dropped_events_are_said(shown):
    shown.picture.add_dropped(7)

    (tile,) = [
        t for t in views.panels(shown)["tiles"] if t["label"] == "Events dropped"
    ]

    assert (tile["value"], tile["tone"]) == ("7", "warn")


def test_a_stopped_recording_is_said(shown):
    stopped = dataclasses.replace(shown, recording="recording stopped: disk is full")

    assert views.panels(stopped)["alert"] == "recording stopped: disk is full"


def test_a_snapshot_holds_every_point(shown):
    update = views.snapshot(shown)

    assert update.series["loss"][0] == [1, 2, 3, 4, 5]
    assert update.memory_names == ["rank 0", "rank 1"]
    assert len(update.memory_rows) == len(update.memory_x) > 0


def test_thousands_of_ranks_are_sent_as_a_band():
    names, rows = views.memory_columns([[float(rank) for rank in range(4096)]], 4096)

    assert list(names) == ["min", "median", "max"]
    assert rows == [[0.0, 2048.0, 4095.0]]


def test_a_rank_that_was_not_measured_is_no_zero():
    names, rows = views.memory_columns([[5.0]], 2)

    assert names == ["rank 0", "rank 1"]
    assert rows[0][0] == 5.0
    assert math.isnan(rows[0][1])


@pytest.mark.parametrize(
    ("measured", "planned", "words"),
    [
        (2048, 2048, "equal to the plan"),
        (3072, 2048, "+1.0 KiB (+50.0%)"),
        (1024, 2048, "-1.0 KiB (-50.0%)"),
        (1024, 0, "+1.0 KiB"),
    ],
)
def test_differences_are_said_in_words(measured, planned, words):
    assert views.difference_text(measured, planned) == words


@pytest.mark.parametrize("toml", ["", "not = [toml", "unknown = 3"])
def test_a_layout_that_cannot_be_read_is_left_out(toml):
    assert views.layout_text(toml) == ""


def test_the_rank_that_is_waited_for_is_named(session, run):
    for step in range(1, 8):
        session.step(step, 2)
        for rank, waited_s in ((0, 0.001), (1, 0.031)):
            session.recorder.record(
                Event(
                    kind="collective",
                    rank=rank,
                    run=run,
                    cause=f"step:{step}",
                    payload={"op": "all_reduce", "axis": "tp", "waited_s": waited_s},
                )
            )
    session.recorder.flush()

    notes = views.panels(see(run))["notes"]

    assert any(
        note.startswith("Rank 1 waits 30% of a step for rank 0 in all-reduce over tp")
        for note in notes
    )
