"""The notebooks that are connected to a session host."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.errors import SessionError
from workbench.protocol.codec import from_frame, to_frame
from workbench.protocol.frames import FrameParser, pack
from workbench.protocol.messages import TO_HOST, CellText

#: Text for a notebook that has stopped reading is dropped beyond this; it is in the log.
_MAX_BEHIND_BYTES = 64 << 20


class Notebook:
    """One connected notebook."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def send(self, message: Any) -> None:
        """Send a message without waiting."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        behind = transport.get_write_buffer_size() > _MAX_BEHIND_BYTES
        if not (behind and isinstance(message, CellText)):
            self._writer.write(pack(to_frame(message)))

    async def finish(self) -> None:
        """Send the rest and hang up."""
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.drain(), 1)
        self._writer.close()


class Hub:
    """Accepts notebooks and reads what they send.

    Args:
        receive: Takes each message with who sent it.
        left: Called after a notebook has gone.
    """

    def __init__(
        self,
        receive: Callable[[Notebook, Any], None],
        left: Callable[[Notebook], None],
    ) -> None:
        self._receive = receive
        self._left = left
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.notebooks: list[Notebook] = []

    async def adopt(self, sock: socket.socket) -> None:
        """Serve the notebook that started this host."""
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)

    async def listen(self, path: Path) -> None:
        """Accept further notebooks of this user; the path is theirs alone to open."""
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(path))
        finally:
            os.umask(before)

    def broadcast(self, message: Any) -> None:
        """Send a message to every notebook."""
        for notebook in self.notebooks:
            notebook.send(message)

    async def close(self) -> None:
        """Let every notebook go."""
        if self._server is not None:
            self._server.close()
        for notebook in list(self.notebooks):
            await notebook.finish()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        notebook = Notebook(writer)
        self.notebooks.append(notebook)
        parser = FrameParser()
        try:
            while data := await reader.read(1 << 20):
                for frame in parser.feed(data):
                    self._receive(notebook, from_frame(frame, TO_HOST))
        except (OSError, SessionError):
            pass  # it is gone, or speaks something else: let go
        finally:
            self.notebooks.remove(notebook)
            writer.close()
            self._left(notebook)
