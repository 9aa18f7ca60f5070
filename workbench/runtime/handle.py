"""A supervisor's handle on one rank: its process, pipes and control socket."""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable

from workbench.protocol.codec import to_frame
from workbench.protocol.frames import Frame, FrameParser
from workbench.protocol.messages import Stream
from workbench.protocol.orders import RankText, StartRank
from workbench.runtime.pump import Pump, open_pipe
from workbench.runtime.spawn import ZygoteClient

#: Passes a frame of a rank on to the host.
Upward = Callable[[int, Frame], None]

#: Messages that say nothing about where in the output they belong.
_UNORDERED = frozenset(("Telemetry", "RankAnswer"))


class RankHandle:
    """One rank's process as the supervisor sees it. Made with `start`."""

    def __init__(
        self, order: StartRank, control: socket.socket, upward: Upward
    ) -> None:
        self.order = order
        self.pid = 0
        self._control = control
        self._upward = upward
        self._parser = FrameParser()
        self._outgoing: deque[memoryview] = deque()
        self._loop = asyncio.get_running_loop()
        self._pumps: list[Pump] = []

    @classmethod
    async def start(
        cls, order: StartRank, zygote: ZygoteClient, upward: Upward
    ) -> "RankHandle":
        """Fork the rank and listen to it.

        Raises:
            ClusterError: The zygote is gone.
        """
        here, there = socket.socketpair()
        here.setblocking(False)
        output, output_end = open_pipe()
        errors, errors_end = open_pipe()
        handle = cls(order, here, upward)
        ends = (there.detach(), output_end, errors_end)
        request = {"role": "rank", **vars(order)}
        try:
            handle.pid = await zygote.fork(request, ends)
        finally:
            for end in ends:
                os.close(end)
        handle._listen(output, errors)
        return handle

    def send(self, data: bytes) -> None:
        """Send packed frames to the rank, in order, without blocking."""
        if not self._outgoing:
            self._loop.add_writer(self._control.fileno(), self._write)
        self._outgoing.append(memoryview(data))
        self._write()

    def signal(self, number: int) -> None:
        """Signal this process, by its id."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def close(self) -> None:
        """Hand over the last output and let go; the process is gone already."""
        for pump in self._pumps:
            pump.close()
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control.fileno())
            self._loop.remove_writer(self._control.fileno())
            self._control.close()

    def drain(self) -> None:
        """Hand over all output so far."""
        for pump in self._pumps:
            pump.drain()

    def _listen(self, output: int, errors: int) -> None:
        self._loop.add_reader(self._control.fileno(), self._read)
        self._pumps = [
            Pump(output, "stdout", self._text),
            Pump(errors, "stderr", self._text),
        ]

    def _text(self, stream: Stream, text: str) -> None:
        message = RankText(rank=self.order.rank, stream=stream, text=text)
        self._upward(self.order.rank, to_frame(message))

    def _read(self) -> None:
        try:
            data = self._control.recv(1 << 20)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._control.fileno())
            return
        for frame in self._parser.feed(data):
            # What the rank wrote before this message is in the pipes by now.
            if frame.header.get("kind") not in _UNORDERED:
                self.drain()
            self._upward(self.order.rank, frame)

    def _write(self) -> None:
        while self._outgoing:
            try:
                sent = self._control.send(self._outgoing[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._outgoing.clear()  # its exit is reported by the zygote
                break
            rest = self._outgoing[0][sent:]
            if rest:
                self._outgoing[0] = rest
            else:
                self._outgoing.popleft()
        if self._control.fileno() >= 0:
            self._loop.remove_writer(self._control.fileno())
