"""Takes batches of events, writes them to the store, tells subscribers what changed.

One thread of its own. Nothing that a rank, a viewer or the disk does can block `add`;
what must be given up is counted.
"""

import getpass
import json
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from workbench.errors import StoreError
from workbench.telemetry.about import about_here
from workbench.telemetry.codec import decode, encode, peek
from workbench.telemetry.events import Event
from workbench.telemetry.picture import Picture
from workbench.telemetry.store import Run, RunStore

Subscriber = Callable[[dict[str, Any]], None]

#: Seconds between two looks at what came in; also the fastest that viewers are told.
TICK_S = 0.1
#: Seconds between two commits. With the tick, well under the promised second.
COMMIT_S = 0.5
#: Seconds between two tellings of what is words and bars, and of being alive; points are
#: told each tick.
FULL_S = 0.5
#: Bytes of batches waiting for the thread, and events waiting for a full disk.
MAX_PENDING_BYTES = 64 << 20
MAX_UNWRITTEN = 200_000


class Recorder:
    """Writes what happens in runs. Its thread lives until `close`.

    Args:
        store: Where to write; stays open after `close`.
    """

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.id = secrets.token_hex(8)
        #: Why nothing is being written, "" while all is well.
        self.trouble = ""
        # Guards the pictures and what is pending; held for moments, never while writing.
        self._lock = threading.RLock()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._refused = 0
        # Held while taking in and writing, so that messages leave in order of `seq`.
        self._writing = threading.RLock()
        self._unwritten: list[Event] = []
        self._dropped: dict[str, int] = {}
        self._pictures: dict[str, Picture] = {}
        self._runs: dict[str, Run] = {}
        self._subscribers: list[Subscriber] = []
        self._seq = 0
        self._committed_s = self._full_s = time.monotonic()
        self._closing = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(
            target=self._work, name="workbench-recorder", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, batch: bytes) -> None:
        """Hand over an encoded batch; from any thread, never blocks.

        Raises:
            StoreError: If this is no batch, or one of a newer version.
        """
        count, dropped = peek(batch)
        with self._lock:
            if self._pending_bytes + len(batch) > MAX_PENDING_BYTES:
                self._refused += count + dropped
                return
            self._pending.append(batch)
            self._pending_bytes += len(batch)

    def record(self, event: Event) -> None:
        """Hand over one event of the session itself."""
        self.add(encode([event]))

    def begin_run(
        self, *, name: str, num_ranks: int, layout_toml: str = "", plan_json: str = ""
    ) -> str:
        """Write a new run to the store, now, and return its id.

        Args:
            name: What the person calls it, any text.
            num_ranks: Ranks that take part.
            layout_toml: The layout, for people and for running it again.
            plan_json: The plan, for comparing with what is measured.
        """
        now_s = time.time()
        run = Run(
            id=time.strftime("%Y%m%d-%H%M%S-", time.localtime(now_s))
            + secrets.token_hex(2),
            name=name,
            status="running",
            started_s=now_s,
            ended_s=None,
            heartbeat_s=now_s,
            host=socket.gethostname(),
            user=_user(),
            num_ranks=num_ranks,
            layout_toml=layout_toml,
            plan_json=plan_json,
            dropped=0,
            recorder=self.id,
            about=json.dumps(about_here()),
        )
        self.store.add_run(run)
        with self._lock:
            self._runs[run.id] = run
            self._pictures[run.id] = Picture(started_s=now_s)
        with self._writing:
            self._publish({"k": "begin", "run": run.id})
        return run.id

    def end_run(self, run: str, *, status: str = "finished") -> None:
        """Write everything of a run and how it ended; then it is read from the store.

        Args:
            run: Its id; ending a run twice, or an unknown one, changes nothing.
            status: "finished", "failed", "interrupted" or "lost".
        """
        if run not in self._runs:
            return
        self.flush()
        now_s = time.time()
        try:
            self.store.end_run(run, status=status, ended_s=now_s)
        except sqlite3.Error as error:
            self.trouble = str(error)
        with self._lock:
            self._runs.pop(run, None)
            self._pictures.pop(run, None)
        with self._writing:
            self._publish({"k": "end", "run": run, "status": status, "ended_s": now_s})

    def commit_soon(self) -> None:
        """Have what was added until now written in a moment; does not wait for it.

        A person who reads a run right after a cell finds all that the cell did.
        """
        if self._pending or self._unwritten:
            self._hurry.set()

    def flush(self) -> None:
        """Write and publish all that was added until now."""
        self._take_in(full=True)
        self._write()

    def close(self) -> None:
        """End the thread after a last write; open runs end as "interrupted"."""
        self._closing.set()
        self._hurry.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        for run in list(self._runs):
            self.end_run(run, status="interrupted")
        self.flush()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` on the recorder's thread with each message; it must be fast.

        Returns:
            A function that ends the subscription.
        """
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def active_runs(self) -> list[str]:
        """Return the ids of runs that go on, oldest first."""
        with self._lock:
            return list(self._runs)

    def snapshot(self, run: str) -> dict[str, Any] | None:
        """Return the message that shows a whole run; None if it does not go on."""
        with self._lock:
            if run not in self._runs:
                return None
            return {
                "k": "snapshot",
                "run": run,
                "seq": self._seq,
                "meta": vars(self._runs[run]),
                "recording": self.trouble,
                "wall_s": time.time(),
                "picture": self._pictures[run].snapshot(),
            }

    def _work(self) -> None:
        while not self._closing.is_set():
            hurried = self._hurry.wait(TICK_S)
            self._hurry.clear()
            self._take_in(full=time.monotonic() - self._full_s >= FULL_S)
            if hurried or time.monotonic() - self._committed_s >= COMMIT_S:
                self._write()

    def _take_in(self, *, full: bool) -> None:
        """Fold what came in into the pictures and publish the changes."""
        with self._writing:
            batches, refused = self._take_pending()
            events: list[Event] = []
            for batch in batches:
                events += self._open(batch)
            with self._lock:
                self._fold(events, refused)
                messages = self._changes(full=full) if events or full else []
            self._unwritten += events
            self._bound_unwritten()
            for message in messages:
                self._publish(message)

    def _take_pending(self) -> tuple[list[bytes], int]:
        with self._lock:
            batches, self._pending = self._pending, []
            refused, self._refused = self._refused, 0
            self._pending_bytes = 0
        return batches, refused

    def _open(self, batch: bytes) -> list[Event]:
        try:
            events, dropped = decode(batch)
        except StoreError:
            count, dropped = peek(batch)
            self._drop("", count + dropped)
            return []
        if dropped:
            self._drop(events[-1].run if events else "", dropped)
        return events

    def _drop(self, run: str, count: int) -> None:
        """Count lost events for their run, or for the newest where that is unknown."""
        with self._lock:
            run = run if run in self._runs else next(reversed(self._runs), "")
            self._dropped[run] = self._dropped.get(run, 0) + count
            if run in self._pictures:
                self._pictures[run].add_dropped(count)

    def _fold(self, events: list[Event], refused: int) -> None:
        if refused:
            self._drop("", refused)
        for event in events:
            picture = self._pictures.get(event.run)
            if picture is not None:
                picture.fold(event)

    def _changes(self, *, full: bool) -> list[dict[str, Any]]:
        if full:
            self._full_s = time.monotonic()
        self._seq += 1
        return [
            {
                "k": "delta",
                "run": run,
                "seq": self._seq,
                "recording": self.trouble,
                "wall_s": time.time(),
                "picture": picture.changes(full=full),
            }
            for run, picture in self._pictures.items()
        ]

    def _write(self) -> None:
        """Commit; on a full disk keep what fits in memory and try again later."""
        with self._writing:
            self._committed_s = time.monotonic()
            events, self._unwritten = self._unwritten, []
            dropped, self._dropped = self._dropped, {}
            try:
                self.store.add_events(events, dropped=dropped, alive=list(self._runs))
            except sqlite3.Error as error:
                self.trouble = f"recording stopped: {error}"
                self._unwritten = events + self._unwritten
                self._dropped = dropped
            else:
                self.trouble = ""

    def _bound_unwritten(self) -> None:
        excess = len(self._unwritten) - MAX_UNWRITTEN
        if excess > 0:
            del self._unwritten[:excess]
            self._drop("", excess)

    def _publish(self, message: dict[str, Any]) -> None:
        for subscriber in list(self._subscribers):
            subscriber(message)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
