"""Where a cell's output is shown: an interface, and its plain form."""

import sys
import time
from typing import Protocol, TextIO

from workbench.protocol.messages import CellDisplay, CellText
from workbench.protocol.spans import label
from workbench.session.grouper import GRACE_S, Grouper, Line


class View(Protocol):
    """Shows the output of one cell."""

    def text(self, message: CellText) -> None:
        """Take text of a rank."""

    def display(self, message: CellDisplay) -> None:
        """Show a figure, a table, HTML."""

    def note(self, text: str) -> None:
        """Show what the host has to say about the cell."""

    def refresh(self, *, final: bool = False) -> float | None:
        """Show what is due; returns seconds until there is more, None if unknown."""


class TextView:
    """Writes lines under the labels of their ranks to two streams.

    Args:
        ranks: Those that run the cell.
        out: For standard output; None means `sys.stdout` at the time of writing.
        err: For standard error, likewise.
        grace_s: See `Grouper`.
    """

    def __init__(
        self,
        ranks: tuple[int, ...],
        out: TextIO | None = None,
        err: TextIO | None = None,
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        self._grouper = Grouper(ranks, grace_s)
        self._out, self._err = out, err
        self._passing = 0
        self._width = len(label(ranks))

    def text(self, message: CellText) -> None:
        """Take text of a rank."""
        now_s = time.monotonic()
        self._grouper.add(message.rank, message.stream, message.text, now_s)

    def display(self, message: CellDisplay) -> None:
        """Show the text form."""
        self.refresh(final=True)
        text = str(message.data.get("text/plain", ""))
        line = Line(ranks=(message.rank,), stream="stdout", text=text)
        self._write([line])

    def note(self, text: str) -> None:
        """Write what the host has to say, to standard error."""
        self.refresh(final=True)
        target = self._err or sys.stderr
        target.write(f"{text}\n")
        target.flush()

    def refresh(self, *, final: bool = False) -> float | None:
        """Write what is due."""
        now_s = time.monotonic()
        self._write(self._grouper.take(now_s, final=final))
        return self._grouper.wait_s(now_s)

    def _write(self, lines: list[Line]) -> None:
        for stream, kept in (("stdout", self._out), ("stderr", self._err)):
            mine = [line for line in lines if line.stream == stream]
            if mine:
                target = kept or getattr(sys, stream)
                target.write("".join(map(self._formatted, mine)))
                target.flush()

    def _formatted(self, line: Line) -> str:
        """Return a line with its label, over what a passing line left there."""
        text = f"{label(line.ranks):<{self._width}} | {line.text}"
        over = f"\r{text:<{self._passing}}" if self._passing else text
        if line.passing:
            self._passing = len(text)
            return over if over.startswith("\r") else "\r" + over
        self._passing = 0
        return over + "\n"
