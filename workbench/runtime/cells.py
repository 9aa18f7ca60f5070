"""Cells that the host knows: what they print, how they end, who follows them."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from workbench.protocol.messages import (
    CellDisplay,
    CellDone,
    CellNote,
    CellText,
    RankOutcome,
    RunCell,
    Stream,
)
from workbench.protocol.orders import CellEnded, RankDisplay, RankText
from workbench.runtime.hub import Notebook
from workbench.runtime.life import Status
from workbench.runtime.output import Gate, Log

#: Finished cells whose output can still be caught up by an attaching notebook.
KEPT_CELLS = 20


@dataclass(kw_only=True)
class Record:
    """One cell from request to end."""

    request: RunCell
    ranks: tuple[int, ...]
    followers: list[Notebook]
    began_s: float = field(default_factory=time.monotonic)
    news_s: float = field(default_factory=time.monotonic)
    explained: bool = False
    shown: list[Any] = field(default_factory=list)
    ended: dict[int, CellEnded] = field(default_factory=dict)
    causes: dict[int, str] = field(default_factory=dict)
    gates: dict[tuple[int, Stream], Gate] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stop: str = ""
    done: CellDone | None = None

    def show(self, message: Any) -> None:
        """Pass output on and keep it for those who attach later."""
        self.news_s, self.explained = time.monotonic(), False
        self.shown.append(message)
        for notebook in self.followers:
            notebook.send(message)

    def outcome(self, rank: int, status: Status, buffers: list[bytes]) -> RankOutcome:
        """Return how the cell ended on one rank; its value's bytes join `buffers`."""
        ended = self.ended.get(rank)
        if ended is None:
            return RankOutcome(
                rank=rank, status=status, cause=self.causes.get(rank, "")
            )
        first = len(buffers)
        buffers.extend(ended.buffers)
        return RankOutcome(
            rank=rank,
            status=ended.status,
            seconds=ended.seconds,
            error=ended.error,
            waiting=ended.waiting,
            bundle=ended.bundle,
            value=tuple(range(first, len(buffers))),
        )


class Cells:
    """The running cell, the waiting ones and the last few that ended."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._records: dict[str, Record] = {}
        self._ended: deque[str] = deque()
        self.current: Record | None = None
        self.history: list[RunCell] = []

    def add(self, request: RunCell, ranks: tuple[int, ...], owner: Notebook) -> None:
        """Remember a cell that someone wants to run."""
        self._records[request.cell] = Record(
            request=request, ranks=ranks, followers=[owner]
        )

    def start(self, cell: str) -> Record:
        """Make a cell the running one."""
        self.current = self._records[cell]
        self.current.began_s = self.current.news_s = time.monotonic()
        return self.current

    def text(self, message: RankText) -> None:
        """Take text of a rank: into the log, and on to those who follow."""
        record = self.current
        name = record.request.cell if record is not None else "-"
        self._log.write(name, message.rank, message.stream, message.text)
        if record is None or record.request.silent:
            return
        gate = record.gates.setdefault((message.rank, message.stream), Gate())
        passed = gate.admit(message.text)
        if passed:
            self._say(record, message.rank, message.stream, passed)

    def display(self, message: RankDisplay) -> None:
        """Take something displayed."""
        record = self._records.get(message.cell)
        if record is not None and not record.request.silent:
            record.show(CellDisplay(**vars(message)))

    def ended(self, message: CellEnded) -> None:
        """Keep how a cell ended on one rank."""
        record = self._records.get(message.cell)
        if record is not None:
            record.ended[message.rank] = message

    def finish(
        self, cell: str, outcomes: tuple[tuple[int, Status], ...], stop: str
    ) -> None:
        """Report a cell as over to those who follow it."""
        record = self._records[cell]
        for (rank, stream), gate in record.gates.items():
            rest = gate.close(self._log.path)
            if rest:
                self._say(record, rank, stream, rest)
        self._log.flush()
        buffers: list[bytes] = []
        record.done = CellDone(
            cell=cell,
            outcomes=tuple(
                record.outcome(r, status, buffers) for r, status in outcomes
            ),
            seconds=time.monotonic() - record.began_s,
            stop=record.stop or stop,
            notes=tuple(record.notes),
            buffers=tuple(buffers),
        )
        for notebook in record.followers:
            notebook.send(record.done)
        if all(outcome.status == "ok" for outcome in record.done.outcomes):
            self.history.append(record.request)
        if self.current is record:
            self.current = None
        self._forget_old(cell)

    def follow(self, cell: str, notebook: Notebook) -> None:
        """Send a notebook what a cell has shown, and the rest as it comes."""
        record = self._records.get(cell)
        if record is None:
            return
        for message in record.shown:
            notebook.send(message)
        if record.done is not None:
            notebook.send(record.done)
        else:
            record.followers.append(notebook)

    def unfollow(self, notebook: Notebook) -> None:
        """Forget a notebook that has gone."""
        for record in self._records.values():
            if notebook in record.followers:
                record.followers.remove(notebook)

    def note(self, text: str) -> None:
        """Add a remark to the running cell's report."""
        if self.current is not None:
            self.current.notes.append(text)

    def explain(self, record: Record, text: str) -> None:
        """Show why a cell makes no progress, once until there is news."""
        record.show(CellNote(cell=record.request.cell, text=text))
        record.explained = True

    def lost(self, rank: int, cause: str) -> None:
        """Say why a rank will not report the running cell."""
        if self.current is not None:
            self.current.causes[rank] = cause

    def _say(self, record: Record, rank: int, stream: Stream, text: str) -> None:
        record.show(
            CellText(cell=record.request.cell, rank=rank, stream=stream, text=text)
        )

    def _forget_old(self, cell: str) -> None:
        self._ended.append(cell)
        while len(self._ended) > KEPT_CELLS:
            self._records.pop(self._ended.popleft(), None)
