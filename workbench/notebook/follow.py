"""Follows a run in one background thread: through its feed, or from the store."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from workbench.errors import SessionError
from workbench.notebook.planned import planned_of
from workbench.notebook.views import Shown
from workbench.telemetry.derive import replay
from workbench.telemetry.feed import FeedClient, find_feed
from workbench.telemetry.paths import store_path
from workbench.telemetry.picture import Picture
from workbench.telemetry.store import Run, RunStore

#: Seconds between two looks at a store that another process writes without a feed.
_POLL_S = 1.0


class Address(Protocol):
    """Where a feed listens and the token that it asks for."""

    @property
    def path(self) -> str:
        """The Unix socket."""

    @property
    def token(self) -> str:
        """What the feed asks for."""


@runtime_checkable
class HasFeed(Protocol):
    """A session: where its recorder can be read, and the run that goes on ("")."""

    run: str

    @property
    def feed(self) -> Address:
        """Where viewers read."""


#: Called with what changed since the last call; None: everything may have.
Listener = Callable[[dict[str, Any] | None], None]


class Follower:
    """Keeps the newest picture of one run and tells a listener of changes.

    Args:
        target: A session, a run's id, or None for the newest run.
        store: The run store's path; the user's own by default.

    Raises:
        StoreError: If there is no such run.
    """

    def __init__(
        self, target: "HasFeed | str | None" = None, *, store: Any = None
    ) -> None:
        self._path = store or store_path()
        with RunStore(self._path, read_only=True) as runs:
            self._run = runs.run(_run_id(target))
            self._picture = replay(runs, self._run.id)
        self._planned = planned_of(self._run.plan_json)
        self._address = target.feed if isinstance(target, HasFeed) else None
        self._follows = isinstance(target, HasFeed)
        self._live = False
        self._recording = ""
        self._seq = -1
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._client: FeedClient | None = None
        self._thread: threading.Thread | None = None

    def shown(self) -> Shown:
        """Return the run as it is known now; from any thread.

        The picture in it goes on changing: read it under `lock`.
        """
        with self._lock:
            return Shown(
                run=self._run,
                picture=self._picture,
                planned=self._planned,
                live=self._live,
                recording=self._recording,
                now_s=time.time(),
            )

    @property
    def lock(self) -> threading.RLock:
        """Held while the picture changes."""
        return self._lock

    def start(self, listener: Listener) -> None:
        """Follow until the run is over (of a session: until it ends) or `close`."""
        self._thread = threading.Thread(
            target=self._work, args=[listener], name="workbench-follow", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._closing.set()
        client = self._client
        if client is not None:
            client.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self, listener: Listener) -> None:
        while not self._closing.is_set():
            if not self._read_feed(listener):
                self._read_store(listener)
            over = self.shown().status != "running"
            if over and not (self._follows and self._session_is_there()):
                return
            self._closing.wait(_POLL_S)

    def _session_is_there(self) -> bool:
        return self._address is not None and find_feed(self._run.recorder) is not None

    def _read_feed(self, listener: Listener) -> bool:
        """Read the feed until it ends; say whether there was one for this run."""
        address = self._address or find_feed(self._run.recorder)
        if address is None:
            return False
        wanted = None if self._follows else self._run.id
        try:
            client = FeedClient(address.path, address.token, wanted)
        except SessionError:
            return False
        with client:
            self._client = client
            return self._take_all(client, listener)

    def _take_all(self, client: FeedClient, listener: Listener) -> bool:
        took = False
        try:
            while not self._closing.is_set():
                message = client.read(_POLL_S)
                if message is None:
                    continue
                if message["k"] == "absent":
                    if not self._follows:
                        return took
                    continue
                took = True
                self._take(message, listener)
                if message["k"] == "end" and not self._follows:
                    return True
        except EOFError:
            pass
        finally:
            self._live = False
        return took

    def _take(self, message: dict[str, Any], listener: Listener) -> None:
        changed = None
        with self._lock:
            self._recording = message.get("recording", "")
            if message["k"] == "snapshot":
                self._begin(message)
            elif message["k"] == "end":
                self._end(message)
            elif message["seq"] > self._seq:
                self._seq = message["seq"]
                self._run = replace(self._run, heartbeat_s=message["wall_s"])
                changed = message["picture"]
                self._picture.apply(changed)
            else:
                return
        listener(changed)

    def _begin(self, message: dict[str, Any]) -> None:
        self._live = True
        self._seq = message["seq"]
        self._run = Run(**{**message["meta"], "heartbeat_s": message["wall_s"]})
        self._planned = planned_of(self._run.plan_json)
        self._picture = Picture(started_s=self._run.started_s)
        self._picture.apply(message["picture"])

    def _end(self, message: dict[str, Any]) -> None:
        self._run = replace(
            self._run, status=message["status"], ended_s=message["ended_s"]
        )

    def _read_store(self, listener: Listener) -> None:
        """Take the run from the store: it is over, or its feed cannot be reached."""
        with RunStore(self._path, read_only=True) as runs:
            run = runs.run(self._run.id)
            picture = replay(runs, run.id)
        with self._lock:
            self._run, self._picture = run, picture
        listener(None)


def _run_id(target: "HasFeed | str | None") -> str | None:
    if isinstance(target, HasFeed):
        return target.run or None
    return target
