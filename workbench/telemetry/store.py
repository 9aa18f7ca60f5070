"""The run store: one SQLite file in WAL mode, one writer per session, many readers.

A commit survives `kill -9` of its process; the recorder commits at least each second.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from workbench.errors import StoreError
from workbench.telemetry.events import Event, Kind

#: Of the tables below; a store with a higher number is refused.
STORE_VERSION = 2

_TABLES = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL,
    started_s REAL NOT NULL, ended_s REAL, heartbeat_s REAL NOT NULL,
    host TEXT NOT NULL, user TEXT NOT NULL, num_ranks INTEGER NOT NULL,
    layout_toml TEXT NOT NULL, plan_json TEXT NOT NULL,
    dropped INTEGER NOT NULL DEFAULT 0, recorder TEXT NOT NULL DEFAULT '',
    about TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY, run TEXT NOT NULL, rank INTEGER NOT NULL,
    kind TEXT NOT NULL, cause TEXT NOT NULL, payload TEXT NOT NULL,
    wall_s REAL NOT NULL, monotonic_s REAL NOT NULL, schema INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS events_of_run ON events (run, kind, seq);
"""

#: A running run whose recorder has not written for so long counts as lost.
LOST_AFTER_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training, as the store knows it.

    Args:
        id: Unique, sortable by start.
        name: What the person called it; plain text, never markup.
        status: "running", or how it ended: "finished", "failed", "interrupted", "lost".
        started_s, ended_s: Seconds since the epoch; `ended_s` None while it runs.
        heartbeat_s: When its recorder last wrote, seconds since the epoch.
        host, user: Where and by whom it was started.
        num_ranks: Ranks it was started with.
        layout_toml, plan_json: What it was planned as; "" without a plan.
        dropped: Events lost in full buffers on the way to the store.
        recorder: Id of the recorder that writes it, for finding its live feed.
        about: JSON of what it was made with: versions, folder, git commit.
    """

    id: str
    name: str
    status: str
    started_s: float
    ended_s: float | None
    heartbeat_s: float
    host: str
    user: str
    num_ranks: int
    layout_toml: str
    plan_json: str
    dropped: int
    recorder: str
    about: str = "{}"

    def status_at(self, now_s: float) -> str:
        """Return the status, "lost" if it runs but its recorder has gone silent."""
        silent = now_s - self.heartbeat_s > LOST_AFTER_S
        return "lost" if self.status == "running" and silent else self.status


class RunStore:
    """Runs and their events in one SQLite file.

    Safe to use from several threads; a context manager.

    Args:
        path: The file; made, with its folder, unless `read_only`.
        read_only: For viewers: nothing can be written through it.

    Raises:
        StoreError: If the file is missing (read-only), of a newer version, or not a
            store.
    """

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._lock = threading.RLock()
        self._db = _connect(self.path, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless when it is closed already."""
        with self._lock:
            self._db.close()

    def add_run(self, run: Run) -> None:
        """Write a new run and commit."""
        columns = list(vars(run))
        marks = ", ".join("?" * len(columns))
        self._write(
            f"INSERT INTO runs ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608
            list(vars(run).values()),
        )

    def end_run(self, run: str, *, status: str, ended_s: float) -> None:
        """Write how a run ended and commit."""
        self._write(
            "UPDATE runs SET status = ?, ended_s = ?, heartbeat_s = ? WHERE id = ?",
            [status, ended_s, ended_s, run],
        )

    def add_events(
        self,
        events: Iterable[Event],
        *,
        dropped: dict[str, int] | None = None,
        alive: Iterable[str] = (),
        now_s: float | None = None,
    ) -> None:
        """Append events in one transaction.

        Args:
            events: In the order in which they arrived.
            dropped: Events newly lost, by run.
            alive: Runs whose heartbeat is set to `now_s`.
            now_s: Seconds since the epoch; the clock's by default.
        """
        now_s = time.time() if now_s is None else now_s
        with self._lock, self._db:
            self._db.executemany(
                "INSERT INTO events"
                " (run, rank, kind, cause, payload, wall_s, monotonic_s, schema)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                map(_event_values, events),
            )
            self._db.executemany(
                "UPDATE runs SET dropped = dropped + ? WHERE id = ?",
                [(count, run) for run, count in (dropped or {}).items()],
            )
            self._db.executemany(
                "UPDATE runs SET heartbeat_s = ? WHERE id = ?",
                [(now_s, run) for run in alive],
            )

    def runs(self) -> list[Run]:
        """Return all runs, newest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT * FROM runs ORDER BY started_s DESC, id DESC"
            ).fetchall()
        return [Run(**dict(row)) for row in rows]

    def run(self, run: str | None = None) -> Run:
        """Return one run, the newest by default.

        Raises:
            StoreError: If there is no such run; the hint names the newest ones.
        """
        with self._lock:
            where, values = ("", []) if run is None else ("WHERE id = ?", [run])
            row = self._db.execute(
                f"SELECT * FROM runs {where} ORDER BY started_s DESC, id DESC LIMIT 1",  # noqa: S608
                values,
            ).fetchone()
        if row is None:
            raise self._unknown(run)
        return Run(**dict(row))

    def events(
        self, run: str, *, kind: Kind | None = None, after_seq: int = 0
    ) -> Iterator[Event]:
        """Yield a run's events in order of arrival.

        Args:
            run: Its id ("" for events outside any run).
            kind: Only these.
            after_seq: Skip the first ones, by the store's own numbering.
        """
        for _, event in self.numbered_events(run, kind=kind, after_seq=after_seq):
            yield event

    def numbered_events(
        self, run: str, *, kind: Kind | None = None, after_seq: int = 0
    ) -> Iterator[tuple[int, Event]]:
        """Yield (store number, event) of a run in order, in chunks, without locking."""
        while chunk := self._chunk(run, kind, after_seq):
            for row in chunk:
                yield row["seq"], _read_event(row)
            after_seq = chunk[-1]["seq"]

    def newest_metrics(self, run: str) -> dict[str, Any]:
        """Return the newest value of each metric that the last reports hold."""
        with self._lock:
            rows = self._db.execute(
                "SELECT payload FROM events WHERE run = ? AND kind = 'metric'"
                " ORDER BY seq DESC LIMIT 10",
                [run],
            ).fetchall()
        newest: dict[str, Any] = {}
        for row in reversed(rows):
            newest |= json.loads(row["payload"])
        return newest

    def _chunk(self, run: str, kind: Kind | None, after_seq: int) -> list[sqlite3.Row]:
        of_kind = "" if kind is None else "AND kind = :kind"
        with self._lock:
            return self._db.execute(
                f"SELECT * FROM events WHERE run = :run {of_kind} AND seq > :after"  # noqa: S608
                " ORDER BY seq LIMIT 5000",
                {"run": run, "kind": kind, "after": after_seq},
            ).fetchall()

    def _write(self, statement: str, values: list[Any]) -> None:
        with self._lock, self._db:
            self._db.execute(statement, values)

    def _unknown(self, run: str | None) -> StoreError:
        ids = [known.id for known in self.runs()[:3]]
        if not ids:
            hint = "start one with wb.launch(plan)"
            return StoreError(f"{self.path} holds no run yet", hint=hint)
        hint = f"the newest are {', '.join(ids)}; wb.runs() lists all"
        return StoreError(f"no run {run!r} in {self.path}", hint=hint)


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    if read_only and not path.exists():
        raise StoreError(
            f"no run store at {path}",
            hint="start a run with wb.launch(plan), or set WORKBENCH_HOME",
        )
    try:
        return _open(path, read_only=read_only)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"{path} cannot be opened as a run store: {error}",
            hint="check the path, its permissions and the free space",
        ) from error


def _open(path: Path, *, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    mode = "ro" if read_only else "rw"
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=10,
        check_same_thread=False,
    )
    try:
        db.row_factory = sqlite3.Row
        version = _check_version(db, path)
        if not read_only:
            _prepare(db, version)
    except BaseException:
        db.close()
        raise
    return db


def _check_version(db: sqlite3.Connection, path: Path) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version > STORE_VERSION:
        raise StoreError(
            f"{path} has store version {version}, this Workbench reads"
            f" up to {STORE_VERSION}",
            hint="update workbench, or set WORKBENCH_HOME to another folder",
        )
    return version


def _prepare(db: sqlite3.Connection, version: int) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    # NORMAL: a commit outlives the process; a power cut may cost the last ones.
    db.execute("PRAGMA synchronous = NORMAL")
    db.executescript(_TABLES)
    if version == 1:
        db.execute("ALTER TABLE runs ADD COLUMN about TEXT NOT NULL DEFAULT '{}'")
    db.execute(f"PRAGMA user_version = {STORE_VERSION}")
    db.commit()


def _event_values(event: Event) -> tuple[Any, ...]:
    return (
        event.run,
        event.rank,
        event.kind,
        event.cause,
        json.dumps(event.payload, separators=(",", ":")),
        event.wall_s,
        event.monotonic_s,
        event.schema,
    )


def _read_event(row: sqlite3.Row) -> Event:
    return Event(
        kind=cast(Kind, row["kind"]),
        rank=row["rank"],
        run=row["run"],
        cause=row["cause"],
        payload=json.loads(row["payload"]),
        wall_s=row["wall_s"],
        monotonic_s=row["monotonic_s"],
        schema=row["schema"],
    )
