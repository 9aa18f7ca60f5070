import threading

import pytest

from workbench.errors import StoreError
from workbench.telemetry import EventBuffer, decode, encode
from workbench.telemetry.codec import peek


def test_full_buffer_drops_the_oldest_and_counts_it(metric):
    buffer = EventBuffer(capacity=3)

    for step in range(5):
        buffer.record(metric(step))
    events, dropped = buffer.drain()

    assert [event.payload["step"] for event in events] == [2, 3, 4]
    assert dropped == 2
    assert buffer.drain() == ([], 0)


def test_records_from_many_threads_are_all_there(metric):
    buffer = EventBuffer()
    threads = [
        threading.Thread(target=lambda: [buffer.record(metric(i)) for i in range(500)])
        for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(buffer.drain()[0]) == 2000


def test_a_buffer_without_room_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        EventBuffer(capacity=0)


def test_a_batch_comes_back_as_it_was(metric, sample):
    events = [metric(1, loss=5.5), sample(3.0, heap_bytes=7, device_bytes=None)]

    assert decode(encode(events, 4)) == (events, 4)


def test_what_a_batch_holds_is_known_without_unpacking(metric):
    assert peek(encode([metric(1), metric(2)], 3)) == (2, 3)


@pytest.mark.parametrize("batch", [b"", b"x", b"[]\n[]", b'{"schema":1}\n[]'])
def test_what_is_no_batch_is_refused(batch):
    with pytest.raises(StoreError, match="not a batch"):
        decode(batch)


def test_a_batch_of_a_newer_version_is_refused():
    with pytest.raises(StoreError, match="schema 99"):
        decode(b'{"schema":99,"count":0,"dropped":0}\n[]')
