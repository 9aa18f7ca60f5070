"""One line that tells how training goes, rewritten in place."""

import sys
import time
from typing import TextIO

#: Between two writes; a person reads no faster.
_INTERVAL_S = 0.25


class ProgressLine:
    """Rewrites one line at most four times a second, and a newline at the end.

    Args:
        shown: Whether this rank is the one that writes.
        num_steps: Steps until the end.
        stream: Where to write; standard output if None.
    """

    def __init__(
        self, *, shown: bool, num_steps: int, stream: TextIO | None = None
    ) -> None:
        self._shown = shown
        self._num_steps = num_steps
        self._stream = stream or sys.stdout
        self._written_s = 0.0
        self._text = ""

    def update(self, text: str, *, step: int) -> None:
        """Show where training stands after `step` steps."""
        share = step / self._num_steps
        bar = "#" * round(20 * share) + "." * (20 - round(20 * share))
        self._text = f"[{bar}] {step}/{self._num_steps} {text}"
        if self._shown and time.monotonic() - self._written_s >= _INTERVAL_S:
            self._write("")

    def close(self) -> None:
        """Write the last state and end the line."""
        if self._shown and self._text:
            self._write("\n")

    def _write(self, end: str) -> None:
        self._stream.write(f"\r{self._text}{end}")
        self._stream.flush()
        self._written_s = time.monotonic()
