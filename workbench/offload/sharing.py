"""One copy of a net for all ranks of a machine: each updates its part of the host's."""

import contextlib
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench.offload.tiers import HostTier, mapped, reserve


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Ranks that keep one copy of a net between them.

    Args:
        rank: This one of them.
        num_ranks: How many they are.
        wait: Returns once all of them have called it.
    """

    rank: int
    num_ranks: int
    wait: Callable[[], None]


class SharedHostTier(HostTier):
    """Host memory that several ranks see: who asks for the n-th tensor gets the same.

    All ranks must make the same tensors in the same order.

    Args:
        folder: In memory (under /dev/shm), readable by these ranks alone; `seal` takes
            it and its files' names away, so that nothing outlives the ranks.
        pinned: As of any host tier.
    """

    def __init__(self, folder: Path, *, pinned: bool = False) -> None:
        super().__init__(pinned=pinned)
        self._folder = folder
        self._made: list[Path] = []

    def _make(self, num_bytes: int) -> torch.Tensor:
        path = self._folder / str(len(self._made))
        self._made.append(path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            reserve(handle, num_bytes, self._folder)
            flat = mapped(mmap.mmap(handle, num_bytes))
        finally:
            os.close(handle)
        if self.pinned:
            torch.cuda.check_error(
                torch.cuda.cudart().cudaHostRegister(flat.data_ptr(), num_bytes, 0)
            )
        return flat

    def seal(self) -> None:
        """Take the names of all files away; to be called once all ranks have them."""
        for path in self._made:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        with contextlib.suppress(OSError):  # the last one to leave finds it empty
            self._folder.rmdir()


class Owners:
    """Deals parameters out to ranks, so that each has about the same bytes.

    Every rank deals alike.

    Args:
        num_ranks: To how many.
    """

    def __init__(self, num_ranks: int) -> None:
        self._bytes = [0] * num_ranks

    def deal(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """Return the rank of each parameter; the largest go first."""
        owners = {}
        for name in sorted(parameters, key=lambda n: (-parameters[n].nbytes, n)):
            rank = self._bytes.index(min(self._bytes))
            self._bytes[rank] += parameters[name].nbytes
            owners[name] = rank
        return owners
