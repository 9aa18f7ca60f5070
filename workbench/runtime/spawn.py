"""The supervisor's side of a zygote: ask it for ranks, hear of exits.

Loads no torch: it runs inside the session host or a Dask worker.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import Callable
from typing import Any

from workbench.errors import ClusterError
from workbench.runtime import wire
from workbench.runtime.launch import Launched

ExitHeard = Callable[[int, int], None]


class ZygoteClient:
    """A launched zygote, heard on the running loop once `attach` was called."""

    def __init__(self, launched: Launched) -> None:
        self.process = launched.process
        self._channel = launched.channel
        self._ready: asyncio.Future[int] | None = None
        self._forks: dict[int, asyncio.Future[int]] = {}
        self._exit_heard: ExitHeard | None = None
        self._requests = 0

    def attach(self, exit_heard: ExitHeard) -> None:
        """Listen on the running loop; `exit_heard(pid, code)` is called for each exit."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        self._exit_heard = exit_heard
        self._channel.setblocking(False)
        loop.add_reader(self._channel.fileno(), self._read)

    async def ready(self) -> None:
        """Wait until the imports are done.

        Raises:
            ClusterError: An import failed.
        """
        assert self._ready is not None
        await asyncio.shield(self._ready)

    async def fork(self, request: dict[str, Any], files: tuple[int, ...]) -> int:
        """Return the process id of a new child; the caller closes its own files."""
        await self.ready()
        self._requests += 1
        number = self._requests
        forked = asyncio.get_running_loop().create_future()
        self._forks[number] = forked
        request = {**request, "request": number, "zygote": self.process.pid}
        wire.send(self._channel, request, files)
        return await forked

    def close(self) -> None:
        """End the zygote and with it every child."""
        with contextlib.suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
        self._channel.close()
        try:
            self.process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self) -> None:
        try:
            received = wire.receive(self._channel)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self._lost("the zygote ended")
            return
        event, _ = received
        self._handle(event)

    def _handle(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                assert self._ready is not None
                self._ready.set_result(event["pid"])
            case "failed":
                self._lost(event["reason"])
            case "forked":
                self._forks.pop(event["request"]).set_result(event["pid"])
            case "exited":
                assert self._exit_heard is not None
                self._exit_heard(event["pid"], event["code"])

    def _lost(self, reason: str) -> None:
        asyncio.get_running_loop().remove_reader(self._channel.fileno())
        error = ClusterError(
            f"no ranks can be started: {reason}",
            hint="see the session's log, and run `workbench doctor`",
        )
        for future in (self._ready, *self._forks.values()):
            if future is not None and not future.done():
                future.set_exception(error)
        self._forks.clear()
        assert self._exit_heard is not None
        self._exit_heard(0, self.process.poll() or 0)
