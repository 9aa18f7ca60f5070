import json

from hypothesis import given
from hypothesis import strategies as st

from workbench.telemetry.picture import Picture, RankState, Series


def test_points_rise_strictly_and_a_resume_replaces_what_came_after():
    series = Series()

    for step in (1, 2, 3, 4, 2, 3):
        series.add(step, step * 10)

    assert series.x == [1, 2, 3]


@given(st.lists(st.integers(0, 500), max_size=400))
def test_a_series_is_bounded_rising_and_keeps_the_newest(steps):
    series = Series(limit=50)

    for step in steps:
        series.add(step, -step)

    assert len(series.x) <= 50
    assert series.x == sorted(set(series.x))
    assert series.x[-1:] == steps[-1:]
    assert series.y == [-x for x in series.x]


def test_changes_applied_elsewhere_give_the_same_picture(metric, sample, collective):
    source, viewer = Picture(started_s=0.0), Picture(started_s=0.0)

    for step in range(30):
        source.fold(metric(step, loss=1.0 * step, other=3))
        source.fold(sample(step / 4, rank=step % 3, heap_bytes=step, weights_bytes=8))
        source.fold(collective(f"step:{step}", rank=step % 3, sent_bytes=5, count=2))
        if step % 4 == 0:
            viewer.apply(json.loads(json.dumps(source.changes())))
    viewer.apply(source.changes())

    assert viewer.snapshot() == source.snapshot()


def test_a_snapshot_is_what_a_late_viewer_needs(metric, sample):
    source, late = Picture(started_s=0.0), Picture(started_s=0.0)
    for step in range(30):
        source.fold(metric(step, loss=1.0))
        source.fold(sample(step / 4, heap_bytes=step))
    late.apply(source.snapshot())
    source.changes()

    source.fold(metric(30, loss=2.0))
    late.apply(source.changes())

    assert late.snapshot() == source.snapshot()


def test_a_change_is_not_altered_by_later_events(sample):
    picture = Picture(started_s=0.0)
    picture.fold(sample(0.0, heap_bytes=1, weights_bytes=1))

    change = picture.changes()
    picture.fold(sample(0.0, heap_bytes=2, weights_bytes=2))

    assert change["ranks"][0]["now_bytes"] == 0
    assert change["ranks"][0]["categories"] == {"weights": 1}


def test_the_first_rank_that_reports_a_metric_is_drawn(metric):
    picture = Picture(started_s=0.0)

    picture.fold(metric(1, rank=3, loss=1.0))
    picture.fold(metric(1, rank=0, loss=9.0))

    assert picture.series["loss"].y == [1.0]


def test_memory_of_a_long_run_is_thinned_to_the_largest(sample):
    picture = Picture(started_s=0.0)

    for tick in range(2000):
        picture.fold(sample(tick / 10, heap_bytes=tick))

    assert len(picture.memory.x) <= 600
    assert picture.memory.y[-1] == [1999]  # the first sample, the base, held 0
    assert picture.memory.x == sorted(set(picture.memory.x))


def test_memory_is_of_the_device_where_there_is_one():
    state = RankState(rank=0)

    assert state.take_memory({"device_bytes": 5, "heap_bytes": 9}) == (5, None)


def test_heap_memory_is_less_what_was_there_before_the_model():
    sample = {"heap_bytes": 9, "heap_peak_bytes": 12, "heap_base_bytes": 4}

    assert RankState(rank=0).take_memory(sample) == (5, 8)


def test_without_a_reported_base_the_first_sample_is_the_base(sample):
    picture = Picture(started_s=0.0)

    for heap in (100, 130, 120):
        picture.fold(sample(0.0, heap_bytes=heap))

    assert (picture.ranks[0].now_bytes, picture.ranks[0].peak_bytes) == (20, 30)


def test_a_peak_from_before_the_model_is_forgotten(sample):
    picture = Picture(started_s=0.0)

    picture.fold(sample(0.0, heap_bytes=100))
    picture.fold(sample(0.1, heap_bytes=900))
    picture.fold(sample(0.2, heap_bytes=250, heap_base_bytes=200))

    assert picture.ranks[0].peak_bytes == 50


def test_memory_that_is_not_measured_is_not_zero():
    assert RankState(rank=0).take_memory({"device_bytes": None}) == (None, None)


def test_traffic_of_equal_steps_is_exact(collective):
    picture = Picture(started_s=0.0)

    for step in range(3):
        for _ in range(2):
            picture.fold(collective(f"step:{step}", payload_bytes=333, sent_bytes=7))

    (row,) = picture.snapshot()["comm"]
    assert (row["times"], row["count"]) == (3, 2)
    assert (row["payload_bytes"], row["sent_bytes"]) == (666, 14)
