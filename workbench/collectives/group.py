"""The ranks' group: formed over a store outside the ranks, cut, formed again."""

import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.device_mesh import DeviceMesh

from workbench.collectives.accounting import Accounting
from workbench.collectives.backends import GROUP_TIMEOUT, BackendName, make_group
from workbench.collectives.call import Observer
from workbench.collectives.cut import Connections, open_sockets
from workbench.collectives.guard import Guard
from workbench.collectives.in_flight import InFlight, Waiting
from workbench.collectives.meshes import MeshKey, axis_groups, build_mesh, mesh_key
from workbench.collectives.ranks import Ranks
from workbench.collectives.wrapped import WrappedGroup
from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.telemetry import Event

#: The name under which torch knows our group.
_PLUGIN = "workbench"


class RankGroup:
    """This rank's share of the group of all ranks, and of every group made from it.

    Only one may be formed at a time in a process, since torch has one default group.
    Made with `form`.
    """

    def __init__(
        self,
        *,
        store_address: tuple[str, int],
        rank: int,
        world_size: int,
        backend: BackendName,
        interface: str | None,
        record: Callable[[Event], None],
        observers: tuple[Observer, ...],
        guard: Guard | None,
        join_timeout: timedelta,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.backend = backend
        self.generation = -1
        self._store_address = store_address
        self._join_timeout = join_timeout
        self.accounting = Accounting()
        self._interface = interface
        self._guard = guard
        self._record = record
        self._in_flight = InFlight()
        self._observers: tuple[Observer, ...] = (
            self._in_flight,
            self.accounting,
            *observers,
        )
        self._connections = Connections(store_port=store_address[1])
        self._phase = "cell"
        self._groups: list[WrappedGroup] = []
        self._vacant: deque[WrappedGroup] = deque()
        self._meshes: dict[MeshKey, DeviceMesh] = {}
        self._layouts: dict[MeshKey, Layout] = {}

    @classmethod
    def form(
        cls,
        *,
        store_address: tuple[str, int],
        rank: int,
        world_size: int,
        backend: BackendName,
        generation: int,
        interface: str | None,
        record: Callable[[Event], None],
        observers: tuple[Observer, ...] = (),
        guard: Guard | None = None,
        join_timeout: timedelta = timedelta(seconds=60),
    ) -> Self:
        """Join the other ranks; blocks until all of them are here.

        Args:
            store_address: Host and port of a TCPStore that lives outside the ranks.
            rank: This rank.
            world_size: All ranks.
            backend: "nccl" where every rank has a GPU of its own, else "gloo".
            generation: Raised by whoever forms the ranks again; all ranks name the
                same one, so that an older generation's messages are never seen.
            interface: The network interface to bind to; None means loopback.
            record: Takes an event, never blocks.
            observers: More watchers of every call.
            guard: Compares calls across ranks; None for no guard.
            join_timeout: How long to wait for the other ranks.
        """
        group = cls(
            store_address=store_address,
            rank=rank,
            world_size=world_size,
            backend=backend,
            interface=interface,
            record=record,
            observers=observers,
            guard=guard,
            join_timeout=join_timeout,
        )
        group._join(generation)
        return group

    def rejoin(self, *, generation: int) -> None:
        """Form the group again after a cut, at the same rank and size.

        The default group and those of every mesh asked for so far are made again, in
        the same order, and take their old objects' places: meshes, DTensors and nets
        that hold them live on. Groups that a person made must be made again.
        """
        old = self._groups[:1] + [g for g in self._groups[1:] if g.is_axis]
        self.close()
        self._vacant.extend(old)
        self._connections = Connections(store_port=self._store_address[1])
        self._join(generation)

    def _join(self, generation: int) -> None:
        self.generation = generation
        store = TCPStore(
            *self._store_address,
            is_master=False,
            wait_for_workers=False,
            timeout=self._join_timeout,
        )
        devices = ["cpu", "cuda"] if self.backend == "nccl" else ["cpu"]
        dist.Backend.register_backend(
            _PLUGIN, self._create, extended_api=True, devices=devices
        )
        dist.init_process_group(
            ",".join(f"{device}:{_PLUGIN}" for device in devices),
            store=PrefixStore(f"generation-{generation}", store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=GROUP_TIMEOUT,
        )
        for layout in self._layouts.values():
            axis_groups(layout, self.rank)

    def _create(self, options: Any, backend_options: Any) -> WrappedGroup:
        """Make one wrapped group; torch calls this for the default and every new one."""
        del backend_options
        before = open_sockets()
        inner = make_group(
            options.store,
            options.group_rank,
            options.group_size,
            backend=self.backend,
            interface=self._interface,
        )
        self._connections.learn(before)
        if self._vacant:
            wrapped = self._vacant.popleft()
            wrapped.adopt(inner)
        else:
            wrapped = WrappedGroup(
                inner,
                backend=self.backend,
                observers=self._observers,
                phase=lambda: self._phase,
                guard=self._guard,
            )
        self._groups.append(wrapped)
        return wrapped

    @property
    def current_phase(self) -> str:
        """The phase that calls are attributed to now; "cell" outside any."""
        return self._phase

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Attribute the calls inside to a phase ("step", "evaluation", ...)."""
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    def in_flight(self) -> tuple[Waiting, ...]:
        """Return the unfinished calls of this rank, oldest first; any thread may ask."""
        return self._in_flight.table()

    def flush(self, *, run: str, cause: str) -> None:
        """Emit one `collective` event per (phase, op, axis) since the last flush."""

        def emit(payload: dict[str, Any]) -> None:
            self._record(
                Event(
                    kind="collective",
                    rank=self.rank,
                    run=run,
                    cause=cause,
                    payload=payload,
                )
            )

        self.accounting.flush(emit)

    def cut(self) -> int:
        """Free this rank from any blocked call; returns how many connections went.

        Safe from any thread. The group cannot be used afterwards: `close` it, then
        `form` the next generation.
        """
        if self.backend == "nccl":
            for group in self._groups:
                group.abort()
        return self._connections.cut()

    def close(self) -> None:
        """Leave the group and let its connections go."""
        if dist.is_initialized():
            # Destroying waits for whatever is outstanding; nothing may be by now.
            self.cut()
            dist.destroy_process_group()
        self._groups.clear()
        self._in_flight.clear()
        gc.collect()

    def ranks(
        self, layout: Layout, *, run: str = "", device: torch.device | None = None
    ) -> Ranks:
        """Return this rank's view for a layout, its axis groups made where missing.

        All ranks must ask for the same layouts in the same order.

        Raises:
            LayoutError: The layout is for another number of ranks.
        """
        return Ranks(
            rank=self.rank,
            world_size=self.world_size,
            device=device or self.device,
            mesh=self._mesh(layout),
            layout=layout,
            run=run,
            record=self._record,
            group=self,
        )

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        if self.backend == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def _mesh(self, layout: Layout) -> DeviceMesh:
        if layout.num_ranks != self.world_size:
            raise LayoutError(
                f"the layout is for {layout.num_ranks} ranks, the group has "
                f"{self.world_size}",
                hint=f"choose degrees that multiply to {self.world_size}, or start "
                f"{layout.num_ranks} ranks",
            )
        key = mesh_key(layout)
        if key not in self._meshes:
            self._layouts[key] = layout
            self._meshes[key] = build_mesh(layout, self.rank, self.device.type)
        return self._meshes[key]
