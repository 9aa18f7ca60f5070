"""Tiers of memory: `device`, `host` and `disk`, each a place where tensors are made.

All three give ordinary tensors, so that every mechanism moves bytes with one verb, a
copy, and CPU code computes on host and disk tensors where they lie. They differ in what
stands behind the bytes:

- device: torch's allocator (on a CPU-only machine the heap, under `budget.enforce`);
- host: pinned memory beside a GPU, otherwise a shared mapping, which no cap on the
  process's private memory counts;
- disk: a memory-mapped file that has no name, so that a crash leaves nothing behind.
"""

import errno
import mmap
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch

from workbench.errors import OffloadError
from workbench.units import bytes_text

TierName = Literal["device", "host", "disk"]

#: Every tensor of a flat buffer starts at a multiple, as torch's own tensors do.
ALIGNMENT = 64


class Tier(ABC):
    """A place where tensors are made, with a limit and a count of what lives there.

    Args:
        capacity_bytes: Most bytes that may live here at once; None for no limit of its
            own (the machine's still holds).
    """

    name: TierName

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._live_bytes = [0]

    @property
    def used_bytes(self) -> int:
        """Bytes that live here now."""
        return self._live_bytes[0]

    @abstractmethod
    def _make(self, num_bytes: int) -> torch.Tensor:
        """Return uint8 [num_bytes], values unset."""

    @abstractmethod
    def available_bytes(self) -> int:
        """Bytes that the machine could still give to this tier."""

    def require(self, num_bytes: int) -> None:
        """Refuse now what could not be made later.

        Raises:
            OffloadError: The tier cannot take that many bytes more.
        """
        room = self.available_bytes()
        if self.capacity_bytes is not None:
            room = min(room, self.capacity_bytes - self.used_bytes)
        if num_bytes > room:
            raise OffloadError(
                f"the {self.name} tier has {bytes_text(room)} left, "
                f"{bytes_text(num_bytes)} are needed",
                hint="use a larger tier, fewer parameters, or more ranks",
            )

    def empty(
        self, shape: Iterable[int], dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Return a tensor of this tier, values unset; it is freed when unreferenced.

        Raises:
            OffloadError: The tier is full.
        """
        shape = tuple(shape)
        num_bytes = max(1, torch.Size(shape).numel()) * dtype.itemsize
        self.require(num_bytes)
        flat = self._make(num_bytes)
        self._live_bytes[0] += num_bytes
        weakref.finalize(flat.untyped_storage(), _less, self._live_bytes, num_bytes)
        whole = flat.view(dtype)
        return whole[: torch.Size(shape).numel()].view(shape)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor that lives in this tier."""
        with torch.no_grad():
            return self.empty(tensor.shape, tensor.dtype).copy_(tensor)


class DeviceTier(Tier):
    """The memory that computes: a GPU's, or the capped heap of a CPU-only rank."""

    name: TierName = "device"

    def __init__(
        self, device: torch.device, *, capacity_bytes: int | None = None
    ) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.device = device

    def _make(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def available_bytes(self) -> int:
        """Free bytes of the GPU; of a CPU-only rank what its cap leaves."""
        if self.device.type == "cuda":
            return int(torch.cuda.mem_get_info(self.device)[0])
        from workbench.offload.budget import room_bytes

        return room_bytes()


class HostTier(Tier):
    """The machine's memory outside the device.

    Args:
        pinned: Page-locked, so that a GPU copies by itself; needs CUDA.
        capacity_bytes: As of any tier.
    """

    name: TierName = "host"

    def __init__(
        self, *, pinned: bool = False, capacity_bytes: int | None = None
    ) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.pinned = pinned

    def _make(self, num_bytes: int) -> torch.Tensor:
        if self.pinned:
            return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
        return mapped(mmap.mmap(-1, num_bytes))

    def available_bytes(self) -> int:
        """Memory that the kernel could give without swapping."""
        with Path("/proc/meminfo").open() as lines:
            for line in lines:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) * 1024
        raise OffloadError("this machine does not say how much memory is available")


class DiskTier(Tier):
    """Files of one folder, mapped into memory; the kernel reads and writes them.

    The files are reserved whole when made, so that a full disk is an error then and not
    a signal later, and have no name, so that nothing is left behind however a rank
    ends. What must outlive the rank belongs into a checkpoint.
    """

    name: TierName = "disk"

    def __init__(self, folder: Path, *, capacity_bytes: int | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.folder = folder
        if not folder.is_dir():
            raise OffloadError(
                f"the disk tier's folder {folder} does not exist", hint="make it first"
            )

    def _make(self, num_bytes: int) -> torch.Tensor:
        with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
            reserve(file.fileno(), num_bytes, self.folder)
            return mapped(mmap.mmap(file.fileno(), num_bytes))

    def available_bytes(self) -> int:
        """Free bytes of the file system, as an ordinary user gets them."""
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize


def reserve(handle: int, num_bytes: int, folder: Path) -> None:
    """Give a file its bytes now, so that none is found missing later.

    Raises:
        OffloadError: The file system is full, or its limits are reached.
    """
    try:
        os.posix_fallocate(handle, 0, num_bytes)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise
        raise OffloadError(
            f"{folder} cannot take {bytes_text(num_bytes)} more: {error.strerror}",
            hint="free space there, or choose another folder",
        ) from error


def mapped(mapping: mmap.mmap) -> torch.Tensor:
    """Return uint8 over a mapping, which lives as long as the tensor's storage."""
    return torch.frombuffer(mapping, dtype=torch.uint8)


def _less(live_bytes: list[int], num_bytes: int) -> None:
    live_bytes[0] -= num_bytes


def host_tier(device: torch.device, *, capacity_bytes: int | None = None) -> HostTier:
    """Return the host tier that belongs to a device: pinned beside a GPU."""
    return HostTier(pinned=device.type == "cuda", capacity_bytes=capacity_bytes)


class Pool:
    """Buffers of one tier that are used again and again, by size.

    Making a mapping or pinning memory costs far more than a copy into a warm one.
    """

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self._free: dict[int, list[torch.Tensor]] = {}

    def take(self, num_bytes: int) -> torch.Tensor:
        """Return uint8 [num_bytes], values unset."""
        free = self._free.get(num_bytes)
        if free:
            return free.pop()
        return self.tier.empty((num_bytes,), torch.uint8)

    def give(self, buffer: torch.Tensor) -> None:
        """Take a buffer back for the next one who needs this size."""
        self._free.setdefault(buffer.numel(), []).append(buffer)


class Flat:
    """One buffer that holds several tensors side by side, aligned.

    Args:
        tier: Where it lives.
        like: What it shall have room for: shapes and dtypes count, values do not.
        buffer: Bytes to use in place of new ones; must be long enough.
    """

    def __init__(
        self,
        tier: Tier | None,
        like: Iterable[torch.Tensor],
        *,
        buffer: torch.Tensor | None = None,
    ) -> None:
        like = list(like)
        if buffer is None:
            assert tier is not None
            buffer = tier.empty((flat_bytes(like),), torch.uint8)
        self.buffer = buffer[: flat_bytes(like)]
        self.views = list(_views(self.buffer, like))


def flat_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of a buffer in which some tensors lie side by side."""
    return sum(_aligned(tensor.nbytes) for tensor in tensors)


def _views(buffer: torch.Tensor, like: list[torch.Tensor]) -> Any:
    start = 0
    for tensor in like:
        view = buffer[start : start + tensor.nbytes].view(tensor.dtype)
        yield view.view(tensor.shape)
        start += _aligned(tensor.nbytes)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
