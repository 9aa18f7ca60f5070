"""Who may interrupt the main thread, and when.

A signal raises KeyboardInterrupt only while the person's code runs, so that a late one
can hit neither the reply of a cell nor the wait for the next.
"""

import signal
import threading
from types import FrameType

from workbench.protocol.messages import CellStatus


class Gate:
    """Open while a cell (or the forming of a group) runs in the main thread."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._open = False
        self.running = ""
        self.stopped: CellStatus | None = None
        signal.signal(signal.SIGINT, self._handle)

    def enter(self, name: str) -> None:
        """Let signals through while `name` runs."""
        self.running, self.stopped = name, None
        self._open = True

    def leave(self) -> None:
        """Let no more signals through."""
        self._open = False
        self.running = ""

    def shut(self) -> bool:
        """Let no more signals through: what follows is the shell's work on an error.

        Returns whether the error is the cell's own, and not a stop from outside.
        """
        self._open = False
        return self.stopped is None

    def mark(self, name: str, status: CellStatus) -> bool:
        """Say how the end of `name` shall be called, if it still runs."""
        if not name or self.running != name:
            return False
        if self.stopped is None:
            self.stopped = status
        return True

    def stop(self, name: str, status: CellStatus) -> bool:
        """Interrupt the main thread if it runs `name`; from any thread."""
        if not self.mark(name, status):
            return False
        assert self._main is not None
        signal.pthread_kill(self._main, signal.SIGINT)
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._open:
            if self.stopped is None:
                self.stopped = "interrupted"
            raise KeyboardInterrupt
