"""A cell that runs: from the connection to a view, until it is over."""

import asyncio
import contextlib
from typing import Any

from workbench.errors import SessionError
from workbench.protocol.messages import (
    CellDisplay,
    CellDone,
    CellNote,
    CellText,
    Closed,
)
from workbench.session.connection import Inbox
from workbench.session.report import error_of
from workbench.session.result import CellResult
from workbench.session.view import View

#: An awaiting cell looks this often whether it was interrupted: its loop is not woken.
TICK_S = 0.05
#: Longer than the ladder that ends with killing a rank.
STOP_TIMEOUT_S = 30.0


class UnderWay:
    """A cell that runs: moves messages from its inbox to its view."""

    def __init__(self, cell: str, inbox: Inbox, view: View) -> None:
        self.cell = cell
        self._inbox = inbox
        self._view = view
        self._due_s: float | None = None
        self._done: CellDone | Closed | None = None

    def advance(self, timeout_s: float) -> bool:
        """Wait for a message and show what came; returns whether the cell is over."""
        wait_s = timeout_s if self._due_s is None else min(self._due_s, timeout_s)
        self._take_all(self._inbox.take(max(wait_s, 0.001)))
        return self._done is not None

    async def wait(self) -> None:
        """Show what comes until the cell is over."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(woken.set)

        self._inbox.call_on_put(wake)
        try:
            while True:
                woken.clear()
                self._take_all(self._inbox.take())
                if self._done is not None:
                    return
                wait_s = TICK_S if self._due_s is None else min(self._due_s, TICK_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), max(wait_s, 0.001))
        finally:
            self._inbox.call_on_put(None)

    def result(self) -> CellResult:
        """Return how it went.

        Raises:
            RankError: Not well.
            SessionError: The session ended first, or the host did not answer.
        """
        match self._done:
            case CellDone():
                result = CellResult(done=self._done)
                if not result.ok:
                    raise error_of(self._done)
                return result
            case Closed():
                raise SessionError(
                    f"the session ended while the cell ran: {self._done.reason}",
                    hint="start another with wb.connect() or %distributed up",
                )
        raise SessionError(
            f"the session host has not said within {STOP_TIMEOUT_S:.0f} s that the "
            "cell was stopped",
            hint="session.close() ends everything",
        )

    def _take_all(self, message: Any | None) -> None:
        while message is not None:
            match message:
                case CellText():
                    self._view.text(message)
                case CellDisplay():
                    self._view.display(message)
                case CellNote():
                    self._view.note(message.text)
                case CellDone() | Closed():
                    self._done = message
                    break
            message = self._inbox.take()
        self._due_s = self._view.refresh(final=self._done is not None)
