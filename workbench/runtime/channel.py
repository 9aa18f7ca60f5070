"""A rank's end of its control channel: frames over a socket, from several threads."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from workbench.protocol.codec import from_frame, to_frame
from workbench.protocol.frames import FrameParser, pack
from workbench.protocol.orders import TO_RANK


class Channel:
    """Sends from any thread; is read by one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        """Send a message; silent when the supervisor is gone, for then so are we."""
        data = pack(to_frame(message))
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(data)

    def messages(self) -> Iterator[Any]:
        """Yield what the supervisor sends, until it is gone."""
        parser = FrameParser()
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except OSError:
                return
            if not data:
                return
            for frame in parser.feed(data):
                yield from_frame(frame, TO_RANK)
