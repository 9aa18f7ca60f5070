"""The one place that sees every collective and message of a rank.

A Python ProcessGroup around torch's own: C++ callers (DDP's reducer, functional
collectives) reach it through torch's trampoline, Python callers directly.
"""

from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup
from torch.distributed.distributed_c10d import GroupName

from workbench.collectives.call import Call, Observer
from workbench.collectives.guard import Guard
from workbench.collectives.methods import METHODS, Payload
from workbench.collectives.work import ObservedWork
from workbench.planner.backend import sent_bytes

_CUSTOM = dist.ProcessGroup.BackendType.CUSTOM

#: Described axis groups carry this before the axis name, as torch's own meshes do.
MESH_PREFIX = "mesh_"


def _placeholder(inner: dist.ProcessGroup) -> Any:
    """Make the backend that torch finds registered: it refuses every call.

    Torch asks a group for the backend of a device, but must send nothing past us.
    """
    kind: Any = FakeProcessGroup  # torch's stubs leave its options out
    options = kind.Options()
    options.error_on_collective = True
    return kind._create_internal(inner.rank(), inner.size(), options)


def _observed(name: str) -> Callable[..., dist.Work]:
    """Make the override of one data-moving method."""
    method = METHODS[name]

    def call(self: "WrappedGroup", *args: Any, **kwargs: Any) -> dist.Work:
        given = (*args, *kwargs.values())
        payload = method.payload(given, self.rank(), self.size())
        record = self.describe(method.op, payload)
        return self.issue(record, lambda: getattr(self.inner, name)(*args, **kwargs))

    call.__name__ = name
    return call


class WrappedGroup(dist.ProcessGroup):
    """A process group whose every call is observed.

    Args:
        inner: The real group that does the work.
        backend: "gloo" or "nccl"; decides the factor of bytes sent and how to wait.
        observers: Told of each call, in this order.
        phase: Gives the current phase's name.
        guard: Compares calls across ranks before they are issued; None for no guard.
    """

    def __init__(
        self,
        inner: dist.ProcessGroup,
        *,
        backend: str,
        observers: Iterable[Observer],
        phase: Callable[[], str],
        guard: Guard | None = None,
    ) -> None:
        # Torch's stubs know only the form with a store.
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]
        self.backend = backend
        self._observers = tuple(observers)
        self._phase = phase
        self._guard = guard
        self._coalescing = False
        self._name = ""
        self._desc = ""
        self._running: deque[ObservedWork] = deque()
        placeholder = _placeholder(inner)
        for device in inner._device_types:
            self._register_backend(device, _CUSTOM, placeholder)
        self._set_default_backend(_CUSTOM)
        self.adopt(inner)

    def adopt(self, inner: dist.ProcessGroup) -> None:
        """Let another real group do the work from now on.

        Nets, meshes and torch's own code hold this object, so they live on when the
        ranks form their group again.
        """
        self.inner = inner
        self._seq = 0
        self._running.clear()

    # Calls ------------------------------------------------------------------------

    def describe(self, op: str, payload: Payload) -> Call:
        """Make the record of a call that is about to be issued."""
        self._seq += 1
        first = payload.first
        return Call(
            op=op,
            axis=self.axis,
            group=self._name,
            seq=self._seq,
            shape=() if first is None else tuple(first.shape),
            dtype="" if first is None else str(first.dtype).removeprefix("torch."),
            payload_bytes=payload.payload_bytes,
            sent_bytes=self._sent_bytes(op, payload),
            phase=self._phase(),
        )

    def _sent_bytes(self, op: str, payload: Payload) -> int:
        if op == "recv":
            return 0
        if payload.kept_bytes is not None:
            return payload.payload_bytes - payload.kept_bytes
        # Between a root and the others, n - 1 parts or copies by n ranks.
        name = "broadcast" if op in ("reduce", "gather", "scatter") else op
        return sent_bytes(self.backend, name, payload.payload_bytes, self.size())

    def issue(self, call: Call, run: Callable[[], dist.Work]) -> dist.Work:
        """Run a call under the observers' eyes."""
        self._settle_running()
        for observer in self._observers:
            observer.issued(call)
        try:
            if self._guard is not None and not self._coalescing:
                self._guard.check(call, self.inner)
            inner = run()
        except BaseException:
            self._finish(call)
            raise
        sliced = self.backend == "gloo" and call.op not in ("send", "recv")
        return ObservedWork(inner, call, sliced=sliced, done=self._waited)

    def _waited(self, work: ObservedWork) -> None:
        """A wait ended: on gloo the call is done, on NCCL the device may still run."""
        if self.backend == "gloo" or work.inner.is_completed():
            self._finish(work.call)
        else:
            self._running.append(work)

    def _settle_running(self) -> None:
        while self._running and self._running[0].inner.is_completed():
            self._finish(self._running.popleft().call)

    def _finish(self, call: Call) -> None:
        call.close()
        for observer in self._observers:
            observer.finished(call)

    @property
    def axis(self) -> str:
        """The axis of the rank grid that this group lies along."""
        if self._desc.startswith(MESH_PREFIX):
            return self._desc.removeprefix(MESH_PREFIX)
        return "world"

    @property
    def is_axis(self) -> bool:
        """Whether this group lies along an axis of a layout's mesh."""
        return self._desc.startswith(MESH_PREFIX)

    # Data-moving methods: one line each so that a search finds them -----------------

    allreduce = _observed("allreduce")
    allreduce_coalesced = _observed("allreduce_coalesced")
    allgather = _observed("allgather")
    allgather_coalesced = _observed("allgather_coalesced")
    _allgather_base = _observed("_allgather_base")
    all_gather_single = _observed("all_gather_single")
    all_gather_single_coalesced = _observed("all_gather_single_coalesced")
    allgather_into_tensor_coalesced = _observed("allgather_into_tensor_coalesced")
    reduce_scatter = _observed("reduce_scatter")
    _reduce_scatter_base = _observed("_reduce_scatter_base")
    reduce_scatter_single = _observed("reduce_scatter_single")
    reduce_scatter_single_coalesced = _observed("reduce_scatter_single_coalesced")
    reduce_scatter_tensor_coalesced = _observed("reduce_scatter_tensor_coalesced")
    alltoall = _observed("alltoall")
    alltoall_base = _observed("alltoall_base")
    all_to_all_single = _observed("all_to_all_single")
    broadcast = _observed("broadcast")
    reduce = _observed("reduce")
    gather = _observed("gather")
    scatter = _observed("scatter")
    send = _observed("send")
    recv = _observed("recv")
    recv_anysource = _observed("recv_anysource")
    barrier = _observed("barrier")

    def monitored_barrier(
        self,
        timeout: timedelta | None = None,
        wait_all_ranks: bool = False,  # noqa: FBT001, FBT002 torch's signature
    ) -> None:
        """Block until every rank is here, or name the ranks that are not."""
        call = self.describe("barrier", Payload(first=None, payload_bytes=0))
        for observer in self._observers:
            observer.issued(call)
        try:
            inner: Any = self.inner
            inner.monitored_barrier(timeout, wait_all_ranks)
        finally:
            self._finish(call)

    # Everything else goes to the real group ----------------------------------------

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalescing = True
        self.inner._start_coalescing(device)

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        self._coalescing = False
        return self.inner._end_coalescing(device)

    def _set_group_name(self, name: str) -> None:
        self._name = name
        super()._set_group_name(GroupName(name))

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc
        super()._set_group_desc(desc)

    def setGroupName(self, name: str) -> None:  # noqa: N802 torch's trampoline asks so
        """Take the name that torch gives the group."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        """Return the name that torch gave the group."""
        return self._name

    def setGroupDesc(self, desc: str) -> None:  # noqa: N802
        """Take the description that torch gives the group."""
        self._desc = desc

    def getGroupDesc(self) -> str:  # noqa: N802
        """Return the description that torch gave the group."""
        return self._desc

    def getBackendName(self) -> str:  # noqa: N802
        """Return a name of our own: by "gloo" DDP takes the backend for torch's."""
        return "workbench"

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of later calls."""
        self.inner.set_timeout(timeout)

    def abort(self) -> None:
        """Abort what runs (NCCL; gloo ignores it, see `cut`)."""
        self.inner.abort()

    def shutdown(self) -> None:
        """Let the real group go."""
        self.inner.shutdown()
