"""What a session says of itself."""

import html
from dataclasses import dataclass, field

from workbench.protocol.messages import Closed, RankInfo, Ready


@dataclass(frozen=True, kw_only=True)
class SessionStatus:
    """A moment in a session's life.

    Args:
        session: Its id.
        phase: "ready", "running", "forming", ...
        generation: How many times the group has been formed.
        ranks: One entry per rank.
        cell: Source of the running cell, "" when idle.
        run: The current run, "" outside any.
        address: The Dask scheduler's.
        log: File with all output.
    """

    session: str
    phase: str
    generation: int
    ranks: tuple[RankInfo, ...]
    cell: str
    run: str
    address: str
    log: str

    def __str__(self) -> str:
        head = f"session {self.session}: {self.phase}, group {self.generation}"
        rows = [
            f"  rank {r.rank}: {r.phase}, {r.device}, pid {r.pid} on {r.host}"
            for r in self.ranks
        ]
        return "\n".join([head, *rows, f"  Dask: {self.address}", f"  log: {self.log}"])

    __repr__ = __str__


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Where viewers read what a session records.

    Args:
        path: A Unix socket of this user.
        token: What it asks for.
    """

    path: str
    token: str = field(repr=False)


def session_html(ready: Ready, closed: Closed | None, *, run: str, log: str) -> str:
    """Return a session as a small table for the notebook."""
    rows = {
        "session": ready.session if closed is None else f"{ready.session} (closed)",
        "ranks": f"{ready.num_ranks}, {ready.backend} on {ready.device}",
        "up in": f"{ready.seconds:.2f} s",
        "Dask": ready.address,
        "run": run or "none",
        "log": log,
    }
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
        for name, text in rows.items()
    )
    return f"<table>{cells}</table>"
