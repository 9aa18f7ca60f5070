"""One forward and backward whose saved tensors leave the device and return."""

import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from workbench.errors import OffloadError
from workbench.offload.compute_clock import ComputeClock
from workbench.offload.lanes import Lanes, Transfer
from workbench.offload.tiers import Pool
from workbench.planner.offload.swap import (
    MAX_LEAVING,
    SavedTensor,
    SwapSetting,
    fetches,
    leaves,
)


@dataclass
class SwapCounts:
    """What one forward and backward did.

    Args:
        kept_bytes: Saved tensors that stayed, parameters and small ones included.
        moved_bytes: Saved tensors that left (and came back).
        stall_s: Time that hooks waited for transfers, by the host's clock.
    """

    kept_bytes: int = 0
    moved_bytes: int = 0
    stall_s: float = 0.0


@dataclass(eq=False)
class _Saved:
    """A storage that autograd saved in this forward, once for all who saved it.

    `kept` holds the bytes where they stay; `host`, `leaving`, `arriving` and `device`
    are those of one that leaves.
    """

    index: int
    num_bytes: int
    source: StorageWeakRef
    version: int
    users: int = 0
    unpacked: int = 0
    changed: bool = False
    kept: torch.Tensor | None = None
    host: torch.Tensor | None = None
    leaving: Transfer | None = None
    arriving: Transfer | None = None
    device: torch.Tensor | None = None


@dataclass(frozen=True)
class _Ticket:
    """What autograd keeps in place of a tensor: enough to make it again."""

    saved: _Saved
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class _Wrapped:
    """What autograd keeps in place of a tensor made of tensors, such as a DTensor."""

    kind: Any
    inner: dict[str, Any]
    context: Any
    shape: torch.Size
    stride: tuple[int, ...]


class Pass:
    """One forward and its backward.

    Args:
        module: Whose parameters stay where they are.
        setting: Which tensors leave, and when they return.
        lanes: To and from the tier.
        pool: Buffers of the tier.
        device: Where tensors return to.
        num_expected: Tensors that the forward before it saved, to tell distances by.
    """

    def __init__(
        self,
        module: nn.Module,
        setting: SwapSetting,
        *,
        lanes: Lanes,
        pool: Pool,
        device: torch.device,
        num_expected: int | None,
    ) -> None:
        self.counts = SwapCounts()
        self._setting = setting
        self._lanes = lanes
        self._pool = pool
        self._device = device
        self._num_expected = num_expected
        self._parameters = {
            storage._cdata for p in module.parameters() for storage in _storages(p)
        }
        #: By index; an entry dies with the last ticket that autograd holds.
        self._live: list[weakref.ref[_Saved]] = []
        self._by_storage: dict[int, weakref.ref[_Saved]] = {}
        self._sizes: list[SavedTensor] = []
        self._leaving: list[bool] = []
        self._issued: set[int] = set()
        self._under_way: deque[Transfer] = deque()
        self._clock = ComputeClock()

    @property
    def num_saved(self) -> int:
        """Saved tensors so far, without parameters and small ones."""
        return len(self._sizes)

    # Forward ------------------------------------------------------------------------

    def pack(self, tensor: torch.Tensor) -> Any:
        """Take a tensor that autograd saves; return what it shall keep instead."""
        with self._clock.paused():
            return self._pack(tensor)

    def _pack(self, tensor: torch.Tensor) -> Any:
        if isinstance(tensor, AsyncCollectiveTensor):
            tensor = tensor.wait()  # its bytes are still arriving from other ranks
        if parts := _parts(tensor):
            inner = {name: getattr(tensor, name) for name in parts[0]}
            for name, part in inner.items():
                inner[name] = self._pack(part) if torch.is_tensor(part) else part
            shape, stride = tensor.shape, tensor.stride()
            return _Wrapped(type(tensor), inner, parts[1], shape, stride)
        storage = tensor.untyped_storage()
        if storage.nbytes() < self._setting.min_bytes or self._stays(tensor):
            self.counts.kept_bytes += storage.nbytes()
            return tensor
        saved = self._known(tensor) or self._save(tensor)
        saved.users += 1
        return _Ticket(
            saved,
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            int(tensor.storage_offset()),
        )

    def _stays(self, tensor: torch.Tensor) -> bool:
        """Whether this is a parameter; FSDP2 shows gathered ones by their base alone."""
        base = tensor if tensor._base is None else tensor._base
        return (
            isinstance(base, nn.Parameter)
            or tensor.untyped_storage()._cdata in self._parameters
        )

    def _known(self, tensor: torch.Tensor) -> _Saved | None:
        """Return the record of a storage that was saved before and not changed since."""
        note = self._by_storage.get(tensor.untyped_storage()._cdata)
        saved = note() if note else None
        if saved is None or saved.source.expired() or saved.version != tensor._version:
            return None
        return saved

    def _save(self, tensor: torch.Tensor) -> _Saved:
        storage, index = tensor.untyped_storage(), self.num_saved
        saved = _Saved(
            index, storage.nbytes(), StorageWeakRef(storage), tensor._version
        )
        distance = 2 * (self._num_expected - index) - 1 if self._num_expected else None
        gone = leaves(
            self._setting,
            num_bytes=saved.num_bytes,
            num_left=sum(self._leaving),
            distance=distance,
        )
        self._clock.saved()
        self._sizes.append(SavedTensor(num_bytes=saved.num_bytes))
        self._leaving.append(gone)
        self._live.append(weakref.ref(saved))
        self._by_storage[storage._cdata] = self._live[-1]
        if gone:
            self._send(saved, tensor)
        else:
            saved.kept = _bytes_of(tensor)
            self.counts.kept_bytes += saved.num_bytes
        return saved

    def _send(self, saved: _Saved, tensor: torch.Tensor) -> None:
        """Begin to copy a storage outward; the device's copy dies when it is through."""
        self.counts.moved_bytes += saved.num_bytes
        saved.host = self._pool.take(saved.num_bytes)
        weakref.finalize(saved, self._pool.give, saved.host).atexit = False
        source, note = _bytes_of(tensor), weakref.ref(saved)

        def check() -> None:
            known = note()
            if known is not None and tensor._version != known.version:
                known.changed = True

        saved.leaving = self._lanes.outward.copy([(saved.host, source)], then=check)
        self._under_way.append(saved.leaving)
        while len(self._under_way) > MAX_LEAVING:
            self._wait(self._under_way.popleft().finish)

    # Backward -----------------------------------------------------------------------

    def unpack(self, kept: Any) -> torch.Tensor:
        """Return the tensor that autograd now uses; begin to fetch those before it."""
        with self._clock.paused():
            tensor: torch.Tensor = self._unpack(kept)
            return tensor

    def _unpack(self, kept: Any) -> Any:
        if isinstance(kept, _Wrapped):
            inner = {name: self._unpack(part) for name, part in kept.inner.items()}
            return kept.kind.__tensor_unflatten__(
                inner, kept.context, kept.shape, kept.stride
            )
        if isinstance(kept, _Ticket):
            return self._restore(kept)
        return kept

    def _restore(self, ticket: _Ticket) -> torch.Tensor:
        saved = ticket.saved
        if saved.unpacked == 0:
            self._clock.used(saved.index)
        self._fetch_from(saved.index)
        flat = saved.kept if saved.kept is not None else self._arrived(saved)
        saved.unpacked += 1
        if saved.unpacked == saved.users:
            # The last user has it now. Under `retain_graph` they may all come again.
            saved.unpacked, saved.device, saved.arriving = 0, None, None
            self._issued.discard(saved.index)
        empty = torch.empty(0, dtype=ticket.dtype, device=flat.device)
        return empty.set_(
            flat.untyped_storage(), ticket.offset, ticket.shape, ticket.stride
        )

    def _fetch_from(self, index: int) -> None:
        for other in fetches(
            index, self._sizes, self._leaving, self._issued, self._setting
        ):
            saved = self._live[other]()
            if saved is None:
                continue
            assert saved.host is not None
            assert saved.leaving is not None
            self._issued.add(other)
            saved.device = torch.empty_like(saved.host, device=self._device)
            saved.arriving = self._lanes.inward.copy(
                [(saved.device, saved.host)], after=[saved.leaving]
            )

    def _arrived(self, saved: _Saved) -> torch.Tensor:
        assert saved.arriving is not None
        assert saved.device is not None
        self._wait(saved.arriving.wait)
        if saved.changed:
            raise OffloadError(
                "a tensor saved for the backward was modified in place before it had "
                "left the device; its gradient would be wrong",
                hint="use the out-of-place form of that operation",
            )
        return saved.device

    def _wait(self, wait: Any) -> None:
        began_s = time.perf_counter()
        wait()
        self.counts.stall_s += time.perf_counter() - began_s

    def profile(self) -> tuple[SavedTensor, ...]:
        """Return sizes and compute times of what was saved, once the backward is over.

        Compute times are the host's clock outside the hooks, so they are those of the
        device on a CPU only.
        """
        return self._clock.profile(self._sizes)


def _storages(tensor: Any) -> Iterator[torch.UntypedStorage]:
    """Yield the storages of a tensor, or of the tensors that it is made of."""
    if parts := _parts(tensor):
        for name in parts[0]:
            yield from _storages(getattr(tensor, name))
    elif isinstance(tensor, torch.Tensor):
        yield tensor.untyped_storage()


def _parts(tensor: Any) -> tuple[Sequence[str], Any] | None:
    """Return the names of what a tensor is made of, and what else it is.

    A DTensor names its mesh among them, so a part need not be a tensor.
    """
    if not is_traceable_wrapper_subclass(tensor):
        return None
    names, context = tensor.__tensor_flatten__()
    return names, context


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor as uint8."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage())
