import asyncio
import stat
import threading
from pathlib import Path

import pytest

from workbench.errors import SessionError
from workbench.telemetry import encode
from workbench.telemetry.feed import FeedClient, FeedServer, find_feed
from workbench.telemetry.recorder import Recorder


@pytest.fixture
def recorder(store):
    with Recorder(store) as recorder:
        yield recorder


@pytest.fixture
def served(recorder, tmp_path_factory):
    """A feed in a thread with its own loop, as in a session host."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = FeedServer(recorder, tmp_path_factory.mktemp("s") / "feed")
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    yield server
    asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
    asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def connect(server, run=None, token=None):
    address = server.address
    return FeedClient(address.path, token or address.token, run)


def read_until(client, *kinds):
    while True:
        message = client.read(10)
        assert message is not None, f"no {kinds} came"
        if message["k"] in kinds:
            return message


def test_a_viewer_gets_a_snapshot_then_changes(recorder, served, metric):
    run = recorder.begin_run(name="a", num_ranks=1)
    recorder.add(encode([metric(1, run=run, loss=5.0)]))
    recorder.flush()

    with connect(served) as client:
        snapshot = read_until(client, "snapshot")
        recorder.add(encode([metric(2, run=run, loss=4.0)]))
        recorder.flush()
        delta = read_until(client, "delta")
        while not delta["picture"]["series"]:
            delta = read_until(client, "delta")

    assert snapshot["meta"]["name"] == "a"
    assert snapshot["picture"]["series"]["loss"] == [[1], [5.0]]
    assert delta["picture"]["series"]["loss"] == [[2], [4.0]]
    assert delta["seq"] > snapshot["seq"]


def test_a_viewer_of_the_newest_run_follows_to_the_next(recorder, served):
    with connect(served) as client:
        assert read_until(client, "absent")["run"] == ""
        run = recorder.begin_run(name="later", num_ranks=1)

        assert read_until(client, "snapshot")["run"] == run


def test_the_end_of_a_run_is_told(recorder, served):
    run = recorder.begin_run(name="a", num_ranks=1)

    with connect(served, run) as client:
        read_until(client, "snapshot")
        recorder.end_run(run, status="failed")

        assert read_until(client, "end")["status"] == "failed"


def test_a_run_that_is_over_is_absent(recorder, served):
    run = recorder.begin_run(name="a", num_ranks=1)
    recorder.end_run(run)

    with connect(served, run) as client:
        assert client.read(10) == {"k": "absent", "run": run}


def test_without_the_token_not_a_word_is_said(recorder, served):
    recorder.begin_run(name="secret", num_ranks=1)

    with connect(served, token="guess") as client, pytest.raises(EOFError):
        client.read(10)


def test_the_socket_and_the_advert_are_private(recorder, served):
    advert = find_feed(recorder.id)

    assert advert == served.address
    assert stat.S_IMODE(Path(advert.path).stat().st_mode) == 0o600
    assert served.address.token not in repr(advert)


def test_a_slow_viewer_blocks_nobody_and_gets_a_snapshot_later(
    recorder, served, metric, store
):
    run = recorder.begin_run(name="a", num_ranks=1)
    # Long text makes each change large, so that the socket's buffers fill soon.
    event = metric(0, run=run)

    with connect(served, run) as slow, connect(served, run) as quick:
        read_until(quick, "snapshot")
        for step in range(150):
            changed = [
                metric(step * 200 + i, run=run, loss=1 / 3, lr=1 / 7)
                for i in range(200)
            ]
            recorder.add(encode([event, *changed]))
            recorder.flush()
            while quick.read(0) is not None:
                pass

        assert len(list(store.events(run))) == 150 * 201
        recorder.end_run(run)
        read_until(quick, "end", "absent")
        kinds = []
        while (message := slow.read(2)) is not None:
            kinds.append(message["k"])
            if message["k"] in ("end", "absent"):
                break

    assert len(kinds) < 150
    assert kinds[0] == "snapshot"
    assert kinds[-1] in ("end", "absent")


def test_a_viewer_that_leaves_is_forgotten(recorder, served):
    recorder.begin_run(name="a", num_ranks=1)

    with connect(served) as stays:
        with connect(served) as leaves:
            read_until(leaves, "snapshot")
        for _ in range(100):
            read_until(stays, "delta")
            if served.num_viewers == 1:
                break
        num_viewers = served.num_viewers

    assert num_viewers == 1


def test_closing_a_client_frees_its_reading_thread(recorder, served):
    client = connect(served)
    read_until(client, "absent")
    ended = threading.Event()

    def read():
        with pytest.raises(EOFError):
            client.read(60)
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    client.close()
    reader.join(10)

    assert ended.is_set()


def test_nobody_there_is_said_with_a_way_out(tmp_path):
    with pytest.raises(SessionError, match="no recorder answers") as caught:
        FeedClient(str(tmp_path / "none"), "token")

    assert "wb.runs()" in str(caught.value)


def test_a_path_too_long_for_a_socket_is_refused(recorder, tmp_path):
    server = FeedServer(recorder, tmp_path / ("x" * 120))

    with pytest.raises(SessionError, match="longer than 100"):
        asyncio.run(server.start())
