"""The read-only feed of a recorder: all that a viewer gets.

A viewer connects to a Unix socket (0600, in a 0700 folder), sends its token and the run
it wants, and is sent a snapshot and then the changes, as length-prefixed JSON. Nothing
that it sends can change anything. A viewer that reads too slowly loses its changes and
is sent a new snapshot when it reads again; nobody else notices.
"""

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workbench.errors import SessionError
from workbench.telemetry.paths import feeds_dir
from workbench.telemetry.recorder import Recorder

_LENGTH = struct.Struct(">I")
#: A request is short; a snapshot of 4096 ranks is some 20 MB.
_MAX_REQUEST_BYTES = 4096
_MAX_MESSAGE_BYTES = 256 << 20
_HELLO_WITHIN_S = 5.0
#: Changes kept for a viewer before it is given a snapshot instead: about 2 s.
_MAX_BEHIND = 20
_MAX_VIEWERS = 64


@dataclass(frozen=True, kw_only=True)
class FeedAddress:
    """Where a live recorder can be read. The token is left out of its repr."""

    path: str
    token: str = field(repr=False)


def find_feed(recorder: str) -> FeedAddress | None:
    """Return where the recorder of that id can be read; None if it is gone."""
    advert = feeds_dir() / f"{recorder}.json"
    if not recorder.isalnum() or not advert.exists():
        return None
    try:
        named = json.loads(advert.read_text())
        return FeedAddress(path=named["path"], token=named["token"])
    except (OSError, ValueError, KeyError):
        return None


class FeedServer:
    """Serves a recorder to viewers on a Unix socket, in the running asyncio loop.

    Args:
        recorder: What is shown.
        socket_path: Made by `start`; below 100 bytes, in a folder of mode 0700.
        advertise: Whether to tell other processes of this user (`find_feed`).
    """

    def __init__(
        self, recorder: Recorder, socket_path: Path | str, *, advertise: bool = True
    ) -> None:
        self.address = FeedAddress(
            path=str(socket_path), token=secrets.token_urlsafe(24)
        )
        self._recorder = recorder
        self._advertise = advertise
        self._viewers: set[_Viewer] = set()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._unsubscribe = _nothing

    @property
    def num_viewers(self) -> int:
        """Viewers that are connected and have shown the token."""
        return len(self._viewers)

    async def start(self) -> None:
        """Listen.

        Raises:
            SessionError: If the path is too long or taken.
        """
        listening = _listen(self.address.path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listening)
        loop = asyncio.get_running_loop()

        def pass_on(message: dict[str, Any]) -> None:
            frame = None if message["k"] == "begin" else _pack(message)
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._publish, message, frame)

        self._unsubscribe = self._recorder.subscribe(pass_on)
        if self._advertise:
            _write_private(self._advert, json.dumps(vars(self.address)))

    async def close(self) -> None:
        """Stop listening and let the viewers go; harmless when closed already."""
        self._unsubscribe()
        self._unsubscribe = _nothing
        if self._server is None:
            return
        # Accept no more, but finish what is being accepted: CPython's transports fail
        # to close their socket when the server is closed under them.
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        await _turns()
        self._server.close()
        self._server = None
        for writer in self._connections.values():
            writer.transport.abort()
        if self._connections:
            await asyncio.wait(list(self._connections), timeout=1)
        await _turns()
        _remove(self._advert, Path(self.address.path))

    @property
    def _advert(self) -> Path:
        return feeds_dir() / f"{self._recorder.id}.json"

    def _publish(self, message: dict[str, Any], frame: bytes | None) -> None:
        for viewer in self._viewers:
            if frame is None and viewer.follows_newest:
                viewer.switch(message["run"])
            elif frame is not None and viewer.run == message["run"]:
                viewer.push(frame)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            request = await asyncio.wait_for(_read_request(reader), _HELLO_WITHIN_S)
            viewer = self._admit(request, writer)
            await self._send_all(viewer, reader)
        except (OSError, ValueError, TypeError, TimeoutError, EOFError):
            pass  # a viewer that left, or that we do not know: no word to it
        finally:
            writer.transport.abort()
            del self._connections[task]

    def _admit(
        self, request: dict[str, Any], writer: asyncio.StreamWriter
    ) -> "_Viewer":
        token = str(request.get("token", ""))
        if not hmac.compare_digest(token.encode(), self.address.token.encode()):
            raise ValueError("wrong token")
        if len(self._viewers) >= _MAX_VIEWERS:
            raise ValueError("too many viewers")
        wanted = request.get("run")
        active = self._recorder.active_runs()
        newest = active[-1] if active else ""
        viewer = _Viewer(writer=writer, follows_newest=wanted is None)
        viewer.switch(newest if wanted is None else str(wanted))
        return viewer

    async def _send_all(self, viewer: "_Viewer", reader: asyncio.StreamReader) -> None:
        """Send until the viewer leaves, which its end of the stream tells."""
        self._viewers.add(viewer)
        leaving = asyncio.ensure_future(_drain_input(reader))
        try:
            while not leaving.done():
                waking = asyncio.ensure_future(viewer.wake.wait())
                await asyncio.wait(
                    {waking, leaving}, return_when=asyncio.FIRST_COMPLETED
                )
                waking.cancel()
                viewer.wake.clear()
                await self._send_waiting(viewer)
        finally:
            leaving.cancel()
            self._viewers.discard(viewer)

    async def _send_waiting(self, viewer: "_Viewer") -> None:
        while viewer.stale or viewer.frames:
            if viewer.stale:
                viewer.stale = False
                viewer.frames.clear()
                frame = _pack(self._snapshot(viewer.run))
            else:
                frame = viewer.frames.popleft()
            viewer.writer.write(frame)
            await viewer.writer.drain()

    def _snapshot(self, run: str) -> dict[str, Any]:
        return self._recorder.snapshot(run) or {"k": "absent", "run": run}


@dataclass(eq=False, kw_only=True)
class _Viewer:
    """One connection: what it watches and what still has to be sent to it."""

    writer: asyncio.StreamWriter
    follows_newest: bool
    run: str = ""
    stale: bool = True
    frames: deque[bytes] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def switch(self, run: str) -> None:
        """Watch another run, from a snapshot on."""
        self.run = run
        self.stale = True
        self.wake.set()

    def push(self, frame: bytes) -> None:
        """Send a change, or a snapshot in place of many."""
        if len(self.frames) >= _MAX_BEHIND:
            self.stale = True
            self.frames.clear()
        self.frames.append(frame)
        self.wake.set()


class FeedClient:
    """The viewer's end of a feed, for use in a thread.

    Args:
        path: The feed's socket.
        token: Its token.
        run: The run to watch; None: the newest that goes on, and later ones.

    Raises:
        SessionError: If nothing listens there.
    """

    def __init__(self, path: str, token: str, run: str | None = None) -> None:
        self._received = bytearray()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(_HELLO_WITHIN_S)
            self._socket.connect(path)
            self._socket.sendall(_pack({"token": token, "run": run}))
        except OSError as error:
            self._socket.close()
            raise SessionError(
                f"no recorder answers at {path}: {error}",
                hint="the session has ended; its runs are in wb.runs()",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def read(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message, or None if there is none within the time.

        Messages have "k": "snapshot", "delta" (drop those whose "seq" is not above the
        newest seen), "end" (the run is over), or "absent" (it does not go on here).

        Raises:
            EOFError: If the feed has ended or this client was closed.
        """
        deadline_s = time.monotonic() + timeout_s
        while (message := self._take_message()) is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not self._receive(left_s):
                return None
        return message

    def close(self) -> None:
        """Leave; from any thread, a read in progress ends with EOFError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _receive(self, timeout_s: float) -> bool:
        try:
            self._socket.settimeout(timeout_s)
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError as error:
            raise EOFError("the feed has ended") from error
        if not data:
            raise EOFError("the feed has ended")
        self._received += data
        return True

    def _take_message(self) -> dict[str, Any] | None:
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        if length > _MAX_MESSAGE_BYTES:
            raise EOFError(f"the feed announced {length} bytes: not a feed")
        end = _LENGTH.size + length
        if len(self._received) < end:
            return None
        message: dict[str, Any] = json.loads(self._received[_LENGTH.size : end])
        del self._received[:end]
        return message


async def _turns() -> None:
    """Let the loop turn: what is being accepted becomes a task, what is aborted closes."""
    for _ in range(5):
        await asyncio.sleep(0)


def _nothing() -> None:
    """Do nothing."""


def _pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


async def _read_request(reader: asyncio.StreamReader) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > _MAX_REQUEST_BYTES:
        raise ValueError(f"a request of {length} bytes")
    request: dict[str, Any] = dict(json.loads(await reader.readexactly(length)))
    return request


async def _drain_input(reader: asyncio.StreamReader) -> None:
    """Return when the other side has closed; what it still sends is thrown away."""
    with contextlib.suppress(OSError):
        while await reader.read(4096):
            pass


def _listen(path: str) -> socket.socket:
    if len(os.fsencode(path)) > 100:
        raise SessionError(
            f"the socket path {path} is longer than 100 bytes",
            hint="set TMPDIR to a shorter folder",
        )
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
        # Before listen(): nobody can have connected with other rights.
        Path(path).chmod(0o600)
    except OSError as error:
        listening.close()
        raise SessionError(f"no feed can listen at {path}: {error}") from error
    return listening


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
