"""A notebook's connection to its session host, read by a thread of its own.

A thread, because the notebook's own loop may be busy with a cell; nothing here calls
into IPython.
"""

import contextlib
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

from workbench.errors import SessionError
from workbench.protocol.codec import from_frame, to_frame
from workbench.protocol.frames import FrameParser, pack
from workbench.protocol.messages import (
    TO_NOTEBOOK,
    Answer,
    Ask,
    CellDisplay,
    CellDone,
    CellNote,
    CellText,
    Closed,
    Notice,
    Ready,
    Stage,
)

CellMessage = CellText | CellDisplay | CellNote | CellDone | Closed


class Inbox:
    """Messages for one waiting caller; other threads put, it takes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._wake: Callable[[], None] | None = None

    def put(self, message: Any) -> None:
        """Add a message and wake who waits."""
        self._queue.put(message)
        wake = self._wake
        if wake is not None:
            wake()

    def call_on_put(self, wake: Callable[[], None] | None) -> None:
        """Set what is called, in the connection's thread, after each message."""
        self._wake = wake

    def take(self, timeout_s: float = 0.0) -> Any | None:
        """Return the next message; None after the time-out. Signals get through."""
        try:
            if timeout_s <= 0:
                return self._queue.get_nowait()
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None


class Connection:
    """Sends to the host and sorts what comes back."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._send_lock = threading.Lock()
        self._lock = threading.Lock()
        self._cells: dict[str, Inbox] = {}
        self._answers: dict[int, Inbox] = {}
        self._requests = 0
        self.coming_up = Inbox()
        self.notices = Inbox()
        self.closed: Closed | None = None
        self._thread = threading.Thread(
            target=self._read, name="workbench-session", daemon=True
        )

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            SessionError: The session is closed or lost.
        """
        if self.closed is not None:
            raise _closed_error(self.closed)
        try:
            with self._send_lock:
                self._socket.sendall(pack(to_frame(message)))
        except OSError as error:
            closed = self.closed or Closed(reason="the session host is gone")
            raise _closed_error(closed) from error

    def open_cell(self, cell: str) -> Inbox:
        """Return the inbox of a cell, made before the cell is sent."""
        inbox = Inbox()
        with self._lock:
            self._cells[cell] = inbox
        return inbox

    def ask(
        self, action: str, buffers: tuple[bytes, ...] = (), **arguments: Any
    ) -> Answer:
        """Ask the host and wait for its answer.

        Raises:
            SessionError: The session is closed, or the host says no.
        """
        inbox = Inbox()
        with self._lock:
            self._requests += 1
            number = self._requests
            self._answers[number] = inbox
        self.send(
            Ask(request=number, action=action, arguments=arguments, buffers=buffers)
        )
        while (answer := inbox.take(0.1)) is None:
            continue
        if isinstance(answer, Closed):
            raise _closed_error(answer)
        assert isinstance(answer, Answer)
        if answer.error:
            raise SessionError(answer.message, hint=answer.hint or None)
        return answer

    def hello(self) -> None:
        """Ask a running host to say what it is; `Ready` comes to `coming_up`."""
        self.send(Ask(request=0, action="hello"))

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait until the host has hung up."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def hang_up(self) -> None:
        """Close this end."""
        with contextlib.suppress(OSError):  # the host may have been first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        parser = FrameParser()
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                break
            for frame in parser.feed(data):
                self._sort(from_frame(frame, TO_NOTEBOOK))
        if self.closed is None:
            self._end(Closed(reason="the session host is gone", error="SessionError"))

    def _sort(self, message: Any) -> None:
        match message:
            case CellText() | CellDisplay() | CellNote():
                self._to_cell(message.cell, message)
            case CellDone():
                self._to_cell(message.cell, message)
                with self._lock:
                    self._cells.pop(message.cell, None)
            case Answer():
                with self._lock:
                    inbox = self._answers.pop(message.request, None)
                if inbox is not None:
                    inbox.put(message)
            case Ready() | Stage():
                self.coming_up.put(message)
            case Notice():
                self.notices.put(message)
            case Closed():
                self._end(message)

    def _to_cell(self, cell: str, message: CellMessage) -> None:
        with self._lock:
            inbox = self._cells.get(cell)
        if inbox is not None:
            inbox.put(message)

    def _end(self, closed: Closed) -> None:
        """Tell everyone who waits."""
        self.closed = closed
        with self._lock:
            waiting = [*self._cells.values(), *self._answers.values()]
            self._cells.clear()
            self._answers.clear()
        for inbox in (self.coming_up, *waiting):
            inbox.put(closed)


def _closed_error(closed: Closed) -> SessionError:
    return SessionError(
        f"the session has ended: {closed.reason}",
        hint=closed.hint or "start another with wb.connect() or %distributed up",
    )
