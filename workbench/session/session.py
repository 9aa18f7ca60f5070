"""A live set of ranks, as the notebook holds it."""

import asyncio
import contextlib
import io
import secrets
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from workbench.errors import SessionError
from workbench.layout import Layout
from workbench.protocol.messages import (
    Close,
    Follow,
    Interrupt,
    RankInfo,
    Ready,
    RunCell,
)
from workbench.protocol.spans import label
from workbench.session.connection import Connection
from workbench.session.export import write_job
from workbench.session.handle import CellHandle
from workbench.session.registry import OPEN_SESSIONS
from workbench.session.result import CellResult
from workbench.session.status import Feed, SessionStatus, session_html
from workbench.session.under_way import STOP_TIMEOUT_S, TICK_S, UnderWay
from workbench.session.values import from_bytes, to_bytes
from workbench.session.view import TextView, View

if TYPE_CHECKING:
    from workbench.planner.contract import Plan

Which = int | Iterable[int] | None


class Session:
    """Ranks that keep their names from cell to cell. Made by `wb.connect`.

    A context manager: leaving it closes the session.

    Args:
        connection: To the host.
        ready: What the host said when the group stood.
        log: File with all output of all ranks.
        host: The host's process if this notebook started it.
        leased: It outlives this notebook for a time.
    """

    def __init__(
        self,
        connection: Connection,
        ready: Ready,
        log: Path,
        host: subprocess.Popen[bytes] | None = None,
        *,
        leased: bool,
    ) -> None:
        self._connection = connection
        self._ready = ready
        self._host = host
        self._leased = leased
        self.log = log
        self.run = ""
        self.plan: Plan | None = None
        OPEN_SESSIONS.add(self)

    # --- what it is

    @property
    def id(self) -> str:
        """The session's id."""
        return self._ready.session

    @property
    def num_ranks(self) -> int:
        """Ranks of the group."""
        return self._ready.num_ranks

    @property
    def address(self) -> str:
        """Address of the Dask scheduler."""
        return self._ready.address

    @property
    def up_s(self) -> float:
        """Seconds that the host took to bring the group up."""
        return self._ready.seconds

    @property
    def feed(self) -> Feed:
        """Where viewers read what the session records."""
        return Feed(path=self._ready.feed, token=self._ready.token)

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self._connection.closed is not None

    @property
    def layout(self) -> Layout:
        """The layout of the current or last run; before any, `dp` over all ranks."""
        return Layout.from_toml(self._connection.ask("status").result["layout"])

    def status(self) -> SessionStatus:
        """Return what each rank is doing now."""
        found = self._connection.ask("status").result
        return SessionStatus(
            session=self.id,
            phase=found["phase"],
            generation=found["generation"],
            ranks=tuple(RankInfo(**row) for row in found["ranks"]),
            cell=found["code"],
            run=found["run"],
            address=self.address,
            log=str(self.log),
        )

    # --- cells

    def run_cell(
        self,
        code: str,
        *,
        ranks: Which = None,
        timeout: float | None = None,
        view: View | None = None,
        number: int = 0,
    ) -> CellResult:
        """Run code on ranks and wait; output is shown as it comes.

        Args:
            code: IPython syntax.
            ranks: Where; None for everywhere.
            timeout: Seconds after which the cell is interrupted.
            view: Where output goes; None prints it.
            number: The cell's number in tracebacks; 0 counts on the ranks.

        Raises:
            RankError: A rank failed, was lost, or the cell was stopped.
            SessionError: The session is closed.

        >>> session.run_cell("rank * 10").values  # doctest: +SKIP
        [0, 10]
        """
        under_way = self._send_cell(code, ranks, timeout, view, number)
        try:
            while not under_way.advance(TICK_S):
                continue
        except BaseException as stop:
            # A cell that nobody waits for any more shall not hold up the next.
            self._connection.send(Interrupt(cell=under_way.cell))
            if not isinstance(stop, KeyboardInterrupt):
                raise
            deadline_s = time.monotonic() + STOP_TIMEOUT_S
            while not under_way.advance(TICK_S) and time.monotonic() < deadline_s:
                continue
        return under_way.result()

    async def run_cell_async(
        self,
        code: str,
        *,
        ranks: Which = None,
        timeout: float | None = None,  # noqa: ASYNC109 the ranks' time-out, not ours
        view: View | None = None,
        number: int = 0,
    ) -> CellResult:
        """Run code on ranks without blocking this notebook's loop; see `run_cell`."""
        under_way = self._send_cell(code, ranks, timeout, view, number)
        try:
            await under_way.wait()
        except (asyncio.CancelledError, KeyboardInterrupt):
            self._connection.send(Interrupt(cell=under_way.cell))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(under_way.wait(), STOP_TIMEOUT_S)
        return under_way.result()

    def start_cell(
        self, code: str, *, ranks: Which = None, timeout: float | None = None
    ) -> CellHandle:
        """Run code on ranks and return at once, with a handle on what it does.

        Cells that are sent meanwhile wait for it.

        >>> handle = session.start_cell("trainer.fit(num_steps=300)")  # doctest: +SKIP
        """
        output = io.StringIO()
        chosen = _chosen(ranks)
        everywhere = tuple(range(self.num_ranks))
        view = TextView(everywhere if chosen is None else chosen, output, output)
        under_way = self._send_cell(code, ranks, timeout, view, 0)

        def cancel() -> None:
            order = Interrupt(cell=under_way.cell, reason="cancelled by its handle")
            self._connection.send(order)

        return CellHandle(under_way, output, cancel)

    def _send_cell(
        self,
        code: str,
        ranks: Which,
        timeout: float | None,
        view: View | None,
        number: int,
    ) -> UnderWay:
        chosen = _chosen(ranks)
        everywhere = tuple(range(self.num_ranks))
        cell = secrets.token_hex(6)
        inbox = self._connection.open_cell(cell)
        shown = view or TextView(everywhere if chosen is None else chosen)
        self._connection.send(
            RunCell(
                cell=cell, code=code, ranks=chosen, timeout_s=timeout, number=number
            )
        )
        return UnderWay(cell, inbox, shown)

    def follow(self, cell: str, view: View | None = None) -> CellResult:
        """Catch up with a running cell's output and wait for its end."""
        inbox = self._connection.open_cell(cell)
        self._connection.send(Follow(cell=cell))
        under_way = UnderWay(
            cell, inbox, view or TextView(tuple(range(self.num_ranks)))
        )
        while not under_way.advance(TICK_S):
            continue
        return under_way.result()

    def interrupt(self) -> None:
        """Stop the running cell on every rank; does not wait."""
        self._connection.send(Interrupt())

    # --- values

    def put(self, *, ranks: Which = None, **names: Any) -> None:
        """Set names on ranks; tensors and arrays travel as raw memory."""
        self._connection.ask("put", to_bytes(names), ranks=_chosen(ranks))

    def get(self, name: str, *, ranks: Which = None) -> Any:
        """Return the value of a name or expression: one value for one rank, else a list.

        Args:
            name: A name, or any expression, e.g. "model.state_dict()".
            ranks: A rank, several, or None for all.

        Raises:
            SessionError: A rank has no such name, or the value cannot travel.
        """
        answer = self._connection.ask("get", name=name, ranks=_chosen(ranks))
        found = [
            from_bytes([answer.buffers[part] for part in row["parts"]])
            for row in answer.result["ranks"]
        ]
        return found[0] if isinstance(ranks, int) else found

    def complete(self, line: str, cursor: int) -> tuple[str, list[str]]:
        """Return the part of a line that rank 0 would complete, and with what."""
        answer = self._connection.ask("complete", line=line, cursor=cursor, ranks=[0])
        row = answer.result["ranks"][0]
        return row["text"], row["matches"]

    def inspect(self, name: str, *, detail: int = 0) -> str:
        """Return what rank 0 knows of a name, as `?` (0) or `??` (1) shows it."""
        answer = self._connection.ask("inspect", name=name, detail=detail, ranks=[0])
        return str(answer.result["ranks"][0]["text"])

    # --- runs

    def begin_run(self, plan: "Plan", name: str) -> str:
        """Open a run: its id is returned, and `ranks`, `layout`, `plan` follow it.

        Raises:
            SessionError: The plan is for another number of ranks, or a cell runs.
        """
        layout = plan.layout
        if layout.num_ranks != self.num_ranks:
            raise SessionError(
                f"the plan is for {layout.num_ranks} ranks, the session has "
                f"{self.num_ranks}",
                hint=f"wb.launch(plan) starts a session of {layout.num_ranks}",
            )
        answer = self._connection.ask(
            "begin_run",
            name=name,
            plan_json=plan.to_json(),
            layout_toml=layout.to_toml(),
        )
        self.plan = plan
        self.run = str(answer.result["run"])
        return self.run

    def end_run(self) -> str:
        """Close the run and return its id; everything it recorded is in the store."""
        answer = self._connection.ask("end_run")
        return str(answer.result["run"])

    def export(self, folder: str | Path) -> Path:
        """Write what ran here as a job: script, layout, torchrun and Slurm files.

        Cells that failed or were stopped are left out.

        Args:
            folder: Where to; files of an earlier export are replaced.

        Returns:
            The script.

        Raises:
            SessionError: A cell is no plain Python.
        """
        return write_job(Path(folder), self._connection.ask("history").result)

    # --- its life

    def restart(self, ranks: Which = None) -> None:
        """Replace ranks by fresh processes and wait for the group; names there are gone."""
        before = self.status().generation
        self._connection.ask("restart", ranks=_chosen(ranks))
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            now = self.status()
            if now.generation > before and now.phase == "ready":
                return
            time.sleep(0.01)
        raise SessionError(
            f"the group did not stand again within 60 s, it is {now.phase}",
            hint=f"see {self.log}",
        )

    def close(self) -> None:
        """End the session and every process of it; harmless when closed already."""
        OPEN_SESSIONS.discard(self)
        if not self.closed:
            with contextlib.suppress(SessionError):
                self._connection.send(Close())
        self._connection.wait_closed(10)
        self._connection.hang_up()
        if self._host is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._host.wait(10)

    def leave(self) -> None:
        """Let this notebook go and the session live on, for its lease.

        Raises:
            SessionError: It has no lease, so it would end.
        """
        if not self._leased:
            raise SessionError(
                "this session lives as long as its notebook",
                hint="start it with a lease: wb.connect(lease_s=3600), then "
                "wb.attach() finds it; or end it with session.close()",
            )
        OPEN_SESSIONS.discard(self)
        self._connection.hang_up()

    def let_go(self) -> None:
        """Leave a session with a lease, close any other: what a notebook's end does."""
        if self._leased:
            self.leave()
        else:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ready = self._ready
        closed = self._connection.closed
        state = f"closed ({closed.reason})" if closed is not None else "open"
        return (
            f"<Session {ready.session}: {label(range(ready.num_ranks))}, "
            f"{ready.backend} on {ready.device}, {state}>"
        )

    def _repr_html_(self) -> str:
        return session_html(
            self._ready, self._connection.closed, run=self.run, log=str(self.log)
        )


def _chosen(ranks: Which) -> tuple[int, ...] | None:
    if ranks is None:
        return None
    return (ranks,) if isinstance(ranks, int) else tuple(sorted(set(ranks)))
