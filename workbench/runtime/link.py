"""The host's end of the comm to one supervisor."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from distributed.comm.core import CommClosedError

from workbench.protocol.codec import from_frame, to_frame
from workbench.protocol.frames import pack, unpack
from workbench.protocol.orders import FROM_RANKS, SUPERVISOR

#: Takes a message from a rank or a supervisor.
Receive = Callable[["Link", Any], None]


class Link:
    """Sends orders to one worker's ranks; hands over what they say."""

    def __init__(
        self, comm: Any, receive: Receive, lost: Callable[["Link"], None]
    ) -> None:
        self._comm = comm
        self._receive = receive
        self._lost = lost
        self._outbox: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._read()), loop.create_task(self._write()))

    def to_supervisor(self, message: Any) -> None:
        """Send an order to the supervisor itself."""
        self.to_rank(SUPERVISOR, message)

    def to_rank(self, rank: int, message: Any) -> None:
        """Send an order to one of its ranks."""
        self._outbox.put_nowait((rank, pack(to_frame(message))))

    async def close(self) -> None:
        """End the comm; the supervisor ends its ranks then."""
        for task in self._tasks:
            task.cancel()
        await self._comm.close()

    async def _write(self) -> None:
        with contextlib.suppress(CommClosedError):
            while True:
                packets = [await self._outbox.get()]
                while not self._outbox.empty():
                    packets.append(self._outbox.get_nowait())
                await self._comm.write(packets)

    async def _read(self) -> None:
        try:
            while True:
                for _, data in await self._comm.read():
                    self._receive(self, from_frame(unpack(data), FROM_RANKS))
        except (CommClosedError, OSError):
            self._lost(self)
        except Exception:
            self._lost(self)
            raise
