"""The supervisor: starts and watches the ranks of one Dask worker.

A worker plugin that never imports torch. One session host talks to it through one
persistent comm, which the host opens to the worker's own port: same TLS, same
certificates, full duplex. When that comm ends, the ranks end.
"""

import asyncio
import contextlib
import os
import signal
import socket
from typing import Any

from distributed.comm.core import CommClosedError
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from workbench.cluster.devices import visible_devices
from workbench.errors import WorkbenchError
from workbench.protocol.codec import from_frame, to_frame
from workbench.protocol.frames import Frame, pack, unpack
from workbench.protocol.orders import (
    SUPERVISOR,
    TO_SUPERVISOR,
    RankExited,
    SignalRank,
    StartRank,
    StartStore,
    StoreStarted,
    SupervisorFailed,
    SupervisorReady,
)
from workbench.runtime.handle import RankHandle
from workbench.runtime.launch import launch_zygote
from workbench.runtime.spawn import ZygoteClient
from workbench.runtime.ties import exit_cause, kill_session

#: What one write on the comm carries: (addressee or source, packed frame) each.
Packet = tuple[int, bytes]


def link_name(session: str) -> str:
    """Return the name under which a worker's supervisor takes over a comm."""
    return f"workbench-link-{session}"


class Supervisor(WorkerPlugin):
    """Runs inside a Dask worker, one per session.

    Args:
        session: The session's id.
        zygote: A zygote that runs already; None starts one.
    """

    def __init__(self, session: str, zygote: ZygoteClient | None = None) -> None:
        self.name = link_name(session)
        self._zygote = zygote
        self._cores = len(os.sched_getaffinity(0))

    def __getstate__(self) -> dict[str, Any]:
        """Travel to other workers without this process's zygote."""
        return {"name": self.name, "_zygote": None, "_cores": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    async def setup(self, worker: Any) -> None:
        """Start the zygote in the worker's main thread and offer the link."""
        if self._zygote is None:
            # A worker of someone's cluster: as many ranks as it would run tasks.
            self._cores = worker.state.nthreads
            self._zygote = ZygoteClient(launch_zygote(os.dup(2)))
        worker.handlers[self.name] = self._link

    async def teardown(self, worker: Any) -> None:
        """End every process."""
        worker.handlers.pop(self.name, None)
        if self._zygote is not None:
            self._zygote.close()

    async def _link(self, comm: Any) -> Status:
        """Serve one host until its comm ends."""
        assert self._zygote is not None
        link = _Link(comm, self._zygote, self._cores)
        try:
            await link.serve()
        finally:
            link.close()
        return Status.dont_reply


class _Link:
    """One host's comm and the ranks that it has asked for."""

    def __init__(self, comm: Any, zygote: ZygoteClient, cores: int) -> None:
        self._comm = comm
        self._cores = cores
        self._zygote = zygote
        self._ranks: dict[int, RankHandle] = {}
        self._store = 0
        self._outbox: asyncio.Queue[Packet] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Pass messages both ways until the comm ends."""
        self._zygote.attach(self._exited)
        writer = self._spawn(self._write())
        self._spawn(self._announce())
        with contextlib.suppress(CommClosedError, OSError):
            while True:
                for addressee, data in await self._comm.read():
                    self._take(addressee, data)
        writer.cancel()

    def close(self) -> None:
        """Kill what this host has started here."""
        for task in self._tasks:
            task.cancel()
        for handle in self._ranks.values():
            kill_session(handle.pid)
            handle.close()
        if self._store:
            kill_session(self._store)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write(self) -> None:
        """Send what has come together since the last write."""
        while True:
            packets = [await self._outbox.get()]
            while not self._outbox.empty():
                packets.append(self._outbox.get_nowait())
            await self._comm.write(packets)

    def _up(self, source: int, frame: Frame) -> None:
        self._outbox.put_nowait((source, pack(frame)))

    def _say(self, message: Any) -> None:
        self._up(SUPERVISOR, to_frame(message))

    async def _announce(self) -> None:
        try:
            await self._zygote.ready()
        except WorkbenchError as error:
            self._say(SupervisorFailed(reason=str(error)))
            return
        self._say(
            SupervisorReady(
                host=socket.gethostname(),
                cores=self._cores,
                devices=visible_devices(),
            )
        )

    def _take(self, addressee: int, data: bytes) -> None:
        if addressee != SUPERVISOR:
            handle = self._ranks.get(addressee)
            if handle is not None:
                handle.send(data)
            return
        message = from_frame(unpack(data), TO_SUPERVISOR)
        match message:
            case StartRank():
                self._spawn(self._start(message))
            case StartStore():
                self._spawn(self._start_store(message))
            case SignalRank():
                self._signal(message)

    async def _start(self, order: StartRank) -> None:
        try:
            handle = await RankHandle.start(order, self._zygote, self._up)
        except (WorkbenchError, OSError) as error:
            self._say(SupervisorFailed(reason=str(error)))
            return
        self._ranks[order.rank] = handle

    async def _start_store(self, order: StartStore) -> None:
        """Listen on the one address that was asked for; the store gets the socket."""
        with socket.create_server((order.host, 0), backlog=1024) as listener:
            port = listener.getsockname()[1]
            request = {"role": "store", "host": order.host, "port": port}
            self._store = await self._zygote.fork(request, (listener.fileno(),))
        self._say(StoreStarted(host=order.host, port=port))

    def _signal(self, order: SignalRank) -> None:
        handle = self._ranks.get(order.rank)
        if handle is None:
            return
        if order.signal == signal.SIGKILL:
            kill_session(handle.pid)
        else:
            handle.signal(order.signal)

    def _exited(self, pid: int, code: int) -> None:
        """Report an exit; process id 0 stands for the zygote itself."""
        if pid in (0, self._store):
            what = "the rendezvous store" if pid else "the fork server"
            self._say(SupervisorFailed(reason=f"{what} ended: {exit_cause(code)}"))
            return
        for handle in list(self._ranks.values()):
            if handle.pid == pid:
                del self._ranks[handle.order.rank]
                handle.close()
                self._say(_exit_message(handle.order, code))


def _exit_message(order: StartRank, code: int) -> RankExited:
    return RankExited(
        rank=order.rank,
        incarnation=order.incarnation,
        code=code,
        cause=exit_cause(code, order.memory_bytes),
    )
