"""Pipes of a rank to messages: at once when quiet, in batches when loud."""

import asyncio
import codecs
import contextlib
import fcntl
import os
from collections.abc import Callable

from workbench.protocol.messages import Stream

#: Text is passed on at once when the last text went out this long ago ...
BATCH_S = 0.1
#: ... or when this much has come together.
BATCH_BYTES = 256 * 1024
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


def open_pipe() -> tuple[int, int]:
    """Return (read end, write end) of a roomy pipe; the read end does not block."""
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # above the system's limit for pipes
        fcntl.fcntl(write, _F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(read, False)
    return read, write


class Pump:
    """Reads one pipe; hands text over in order, as UTF-8 with errors replaced."""

    def __init__(
        self, fd: int, stream: Stream, emit: Callable[[Stream, str], None]
    ) -> None:
        self._fd = fd
        self._stream = stream
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(fd, self._read_some)

    def drain(self) -> None:
        """Read what is there and hand it over now."""
        while self._read() > 0:
            continue
        self._flush()

    def close(self) -> None:
        """Hand over the rest and close the pipe."""
        if self._fd < 0:
            return
        self.drain()
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _read(self) -> int:
        """Return how many bytes came; 0 when there are none now, or no more."""
        if self._fd < 0:
            return 0
        try:
            data = os.read(self._fd, _PIPE_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._loop.remove_reader(self._fd)
            return 0
        self._pending.append(data)
        self._pending_bytes += len(data)
        return len(data)

    def _read_some(self) -> None:
        self._read()
        quiet_s = self._loop.time() - self._last_s
        if quiet_s >= BATCH_S or self._pending_bytes >= BATCH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(BATCH_S - quiet_s, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self._last_s = self._loop.time()
        text = self._decoder.decode(data)
        if text:
            self._emit(self._stream, text)
