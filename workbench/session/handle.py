"""A cell that runs while the notebook goes on."""

import io
import threading
from collections.abc import Callable, Generator
from typing import Any

from workbench.errors import SessionError
from workbench.session.result import CellResult
from workbench.session.under_way import TICK_S, UnderWay

#: Lines of output that the handle's own display shows.
_SHOWN_LINES = 12


class CellHandle:
    """A detached cell: look at it, wait for it, cancel it. Made by `start_cell`.

    Args:
        under_way: The cell.
        output: Where its view writes.
        cancel: Stops it.
    """

    def __init__(
        self, under_way: UnderWay, output: io.StringIO, cancel: Callable[[], None]
    ) -> None:
        self._under_way = under_way
        self._output = output
        self._cancel = cancel
        self._thread = threading.Thread(
            target=self._run, name="workbench-detached", daemon=True
        )
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether the cell is over, well or not."""
        return not self._thread.is_alive()

    @property
    def output(self) -> str:
        """What its ranks have printed so far, progress bars as they were last."""
        lines = self._output.getvalue().split("\n")
        return "\n".join(line.rpartition("\r")[2].rstrip() for line in lines)

    def cancel(self) -> None:
        """Stop the cell on every rank; does not wait."""
        self._cancel()

    def result(self, timeout: float | None = None) -> CellResult:
        """Wait for the cell and return what it gave.

        Raises:
            RankError: The cell failed or was stopped.
            SessionError: It is not over within the time-out (seconds).
        """
        self._thread.join(timeout)
        if not self.done:
            raise SessionError(
                f"the cell is not over after {timeout:g} s",
                hint="look at handle.output, or stop it with handle.cancel()",
            )
        return self._under_way.result()

    def __await__(self) -> Generator[Any, None, CellResult]:
        import asyncio

        return asyncio.to_thread(self.result).__await__()

    def __repr__(self) -> str:
        state = "over" if self.done else "running"
        lines = self.output.rstrip().split("\n")[-_SHOWN_LINES:]
        return "\n".join([f"<CellHandle: {state}>", *lines]).rstrip()

    def _run(self) -> None:
        while not self._under_way.advance(TICK_S):
            continue
