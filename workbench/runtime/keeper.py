"""The keeper of a session: brings its parts up in order and takes them down again."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from workbench.cluster.connect import Cluster, open_cluster
from workbench.cluster.placement import Room, default_ranks, place
from workbench.errors import WorkbenchError
from workbench.layout import Layout
from workbench.protocol import orders
from workbench.protocol.messages import (
    Answer,
    Ask,
    Close,
    Closed,
    Follow,
    Interrupt,
    Open,
    Ready,
    RunCell,
    Stage,
)
from workbench.runtime.engine import Engine
from workbench.runtime.hub import Hub, Notebook
from workbench.runtime.link import Link
from workbench.runtime.output import Log
from workbench.runtime.requests import Requests
from workbench.runtime.spawn import ZygoteClient
from workbench.runtime.supervisor import Supervisor, link_name
from workbench.telemetry.feed import FeedServer
from workbench.telemetry.paths import store_path
from workbench.telemetry.recorder import Recorder
from workbench.telemetry.store import RunStore

#: Longer than importing torch on a slow disk, shorter than a person's patience.
START_TIMEOUT_S = 120.0


class Keeper:
    """Owns every part of one session.

    Args:
        session: Its id.
        directory: Private to the session; removed at its end.
        order: What the notebook wants.
        zygote: A zygote that is starting; None where workers elsewhere have their own.
        began_s: When this process began, monotonic.
    """

    def __init__(
        self,
        *,
        session: str,
        directory: Path,
        order: Open,
        zygote: ZygoteClient | None,
        began_s: float,
    ) -> None:
        self._session = session
        self._directory = directory
        self._order = order
        self._zygote = zygote
        self._began_s = began_s
        self._hub = Hub(self._receive, self._left)
        self._log = Log(Path(order.log))
        self._recorder = Recorder(RunStore(store_path()))
        self._feed = FeedServer(self._recorder, directory / "feed")
        self._waiting_for: dict[int, asyncio.Future[Any]] = {}
        self._links: list[Link] = []
        self._cluster: Cluster | None = None
        self._engine: Engine | None = None
        self._requests: Requests | None = None
        self._over: asyncio.Future[Closed] | None = None
        self._lease: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._was_ready = False

    async def serve(self, notebook: socket.socket) -> None:
        """Bring the session up, serve it, take it down."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.close, f"signal {number.name}")
        await self._hub.adopt(notebook)
        coming_up = self._spawn(self._bring_up())
        closed = await self._over
        coming_up.cancel()
        await self._take_down(closed)

    def close(self, reason: str, *, error: str = "", hint: str = "") -> None:
        """End the session; the first reason counts."""
        if self._over is not None and not self._over.done():
            self._over.set_result(Closed(reason=reason, error=error, hint=hint))

    # --- up

    async def _bring_up(self) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._start()
        except TimeoutError:
            self.close(
                f"the session did not stand after {START_TIMEOUT_S:.0f} s",
                error="ClusterError",
                hint=f"see {self._order.log}",
            )
        except WorkbenchError as error:
            self.close(error.message, error=type(error).__name__, hint=error.hint or "")
        except Exception as error:
            self.close(f"{type(error).__name__}: {error}", error="ClusterError")
            raise

    async def _start(self) -> None:
        order = self._order
        self._say("starting Dask and importing torch")
        self._cluster = await open_cluster(
            address=order.address,
            security=order.security,
            directory=self._directory,
            plugin=Supervisor(self._session, self._zygote),
        )
        rooms = await self._open_links(self._cluster)
        num_ranks = order.num_ranks or default_ranks(rooms, backend=order.backend)
        places = place(
            num_ranks,
            rooms,
            backend=order.backend,
            oversubscribe=order.oversubscribe,
        )
        self._say(f"starting {num_ranks} ranks")
        store = await self._start_store()
        self._engine = Engine(
            links=tuple(self._links),
            rooms=rooms,
            places=places,
            group=orders.FormGroup(
                generation=0,
                world_size=num_ranks,
                store_host=store.host,
                store_port=store.port,
                backend=order.backend,
                interface=order.interface,
                layouts=(Layout(dp=num_ranks).to_toml(),),
            ),
            environment=order.environment,
            memory_bytes=order.memory_bytes,
            hub=self._hub,
            log=self._log,
            ready=self._stands,
            ended=self._engine_ended,
            telemetry=self._recorder.add,
            rested=self._recorder.commit_soon,
        )
        self._requests = Requests(self._engine, self._recorder)
        self._engine.begin()

    async def _open_links(self, cluster: Cluster) -> tuple[Room, ...]:
        """Open one comm per worker and hear what each has."""
        loop = asyncio.get_running_loop()
        futures = []
        for number, worker in enumerate(cluster.workers):
            comm = await cluster.open_link(worker, link_name(self._session))
            self._waiting_for[number] = loop.create_future()
            futures.append(self._waiting_for[number])
            self._links.append(Link(comm, self._from_rank, self._link_lost))
        heard = await asyncio.gather(*futures)
        self._waiting_for.clear()
        return tuple(
            Room(host=each.host, cores=each.cores, devices=each.devices)
            for each in heard
        )

    async def _start_store(self) -> orders.StoreStarted:
        """Start the rendezvous on the first worker's host."""
        self._waiting_for[0] = asyncio.get_running_loop().create_future()
        host = "127.0.0.1"
        self._links[0].to_supervisor(orders.StartStore(host=host))
        started: orders.StoreStarted = await self._waiting_for[0]
        return started

    def _stands(self) -> None:
        """Tell notebooks that the group stands; the first time, open the doors."""
        if not self._was_ready:
            self._was_ready = True
            self._spawn(self._open_doors())

    async def _open_doors(self) -> None:
        await self._feed.start()
        await self._hub.listen(self._directory / "door")
        self._write_pointer()
        self._hub.broadcast(self._ready_message())

    def _ready_message(self) -> Ready:
        assert self._engine is not None
        assert self._cluster is not None
        infos = self._engine.rank_infos()
        return Ready(
            session=self._session,
            num_ranks=self._engine.num_ranks,
            backend=self._order.backend,
            device="cpu" if infos[0].device == "cpu" else "cuda",
            address=self._cluster.address,
            feed=self._feed.address.path,
            token=self._feed.address.token,
            seconds=time.monotonic() - self._began_s,
        )

    def _write_pointer(self) -> None:
        """Leave a note for those who attach: private, and complete when it appears."""
        path = Path(self._order.pointer)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = {
            "session": self._session,
            "pid": os.getpid(),
            "directory": str(self._directory),
            "door": str(self._directory / "door"),
            "num_ranks": self._engine.num_ranks if self._engine else 0,
            "started_s": time.time(),
        }
        draft = path.with_suffix(".tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(note, file)
        draft.rename(path)

    def _remove_pointer(self) -> None:
        Path(self._order.pointer).unlink(missing_ok=True)

    # --- messages

    def _receive(self, notebook: Notebook, message: Any) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        if isinstance(message, Close):
            self.close("closed by the notebook")
            return
        if self._engine is None or self._requests is None:
            return  # nothing to talk to yet; a notebook waits for Ready
        match message:
            case RunCell():
                self._engine.run_cell(message, notebook)
            case Interrupt():
                self._engine.interrupt(message)
            case Follow():
                self._engine.cells.follow(message.cell, notebook)
            case Ask(action="hello"):
                notebook.send(self._ready_message())
            case Ask():
                self._spawn(self._answer(notebook, message, self._requests))

    async def _answer(
        self, notebook: Notebook, question: Ask, requests: Requests
    ) -> None:
        answer: Answer = await requests.answer(question)
        notebook.send(answer)

    def _left(self, notebook: Notebook) -> None:
        """Start the lease when the last notebook has gone."""
        if self._engine is not None:
            self._engine.cells.unfollow(notebook)
        if self._hub.notebooks:
            return
        reason = "no notebook is connected any more"
        loop = asyncio.get_running_loop()
        self._lease = loop.call_later(self._order.lease_s, self.close, reason)

    def _from_rank(self, link: Link, message: Any) -> None:
        match message:
            case orders.SupervisorReady():
                self._waiting_for[self._links.index(link)].set_result(message)
            case orders.StoreStarted():
                self._waiting_for[0].set_result(message)
            case _ if self._engine is not None:
                self._engine.receive(link, message)
            case orders.SupervisorFailed():
                self.close(
                    message.reason, error="ClusterError", hint=f"see {self._order.log}"
                )

    def _link_lost(self, link: Link) -> None:
        if self._engine is not None:
            self._engine.link_lost(link)
        else:
            self.close("a worker closed its connection", error="ClusterError")

    def _engine_ended(self, reason: str, failed: bool) -> None:  # noqa: FBT001
        self.close(reason, error="SessionError" if failed else "")

    # --- down

    async def _take_down(self, closed: Closed) -> None:
        """End ranks first, then what they need, then the traces on disk."""
        self._remove_pointer()
        if self._engine is not None:
            self._engine.close(closed.reason)
        if self._requests is not None:
            self._requests.end_open_run("failed" if closed.error else "finished")
        for link in self._links:
            await _quietly(link.close())
        if self._zygote is not None:
            self._zygote.close()
        # The notebook may go on now: no rank of ours is left.
        self._hub.broadcast(closed)
        await _quietly(self._feed.close())
        await self._hub.close()
        if self._cluster is not None:
            await _quietly(self._cluster.close())
        self._recorder.close()
        self._recorder.store.close()
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _say(self, text: str) -> None:
        self._hub.broadcast(Stage(text=text))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            print(f"{task.exception()!r}", file=sys.stderr)  # noqa: T201 the host's log


async def _quietly(work: Any) -> None:
    """Give a part three seconds to end by itself; the rest ends with the process."""
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(work, 3)
