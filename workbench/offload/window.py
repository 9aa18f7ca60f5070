"""The device's window on a net: two buffers, each as large as the largest unit."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from workbench.offload.lanes import Lane, Transfer
from workbench.offload.tiers import Flat, Tier, flat_bytes

#: While one unit computes, the next one is copied in.
NUM_BUFFERS = 2


@dataclass(frozen=True)
class _Resident:
    buffer: torch.Tensor
    tensors: list[torch.Tensor]
    arriving: Transfer


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies in whichever buffer its unit is in."""

    dtype: torch.dtype
    offset: Any
    shape: torch.Size
    stride: Any


class Window:
    """Units on the device: never more than two, coming ones copied in ahead.

    Args:
        tier: The device.
        units: What each unit has on the host, in the order of its tensors.
        inward: The lane that copies in.
        before: Transfers that a unit's copy must wait for (its optimizer step).
        noted: Called when the copy of a unit is issued.
    """

    def __init__(
        self,
        tier: Tier,
        units: Sequence[list[torch.Tensor]],
        inward: Lane,
        *,
        before: Callable[[int], Sequence[Transfer]],
        noted: Callable[[int], None],
    ) -> None:
        self._units = units
        self._inward = inward
        self._before = before
        self._noted = noted
        self.unit_bytes = max(flat_bytes(tensors) for tensors in units)
        self._free = [
            tier.empty((self.unit_bytes,), torch.uint8) for _ in range(NUM_BUFFERS)
        ]
        self._resident: OrderedDict[int, _Resident] = OrderedDict()
        self.most_resident = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of both buffers."""
        return NUM_BUFFERS * self.unit_bytes

    @property
    def resident(self) -> tuple[int, ...]:
        """Units that are on the device or on their way there."""
        return tuple(self._resident)

    def fetch(self, unit: int) -> None:
        """Begin to copy a unit in, over the one that was used longest ago."""
        if unit in self._resident:
            return
        if not self._free:
            _, oldest = self._resident.popitem(last=False)
            self._free.append(oldest.buffer)
        buffer = self._free.pop()
        flat = Flat(None, self._units[unit], buffer=buffer)
        pairs = list(zip(flat.views, self._units[unit], strict=True))
        arriving = self._inward.copy(pairs, after=self._before(unit))
        self._resident[unit] = _Resident(buffer, flat.views, arriving)
        self.most_resident = max(self.most_resident, len(self._resident))
        self._noted(unit)

    def use(self, unit: int, *, following: int | None) -> list[torch.Tensor]:
        """Return a unit's tensors on the device; begin to fetch the one after it."""
        self.fetch(unit)
        self._resident.move_to_end(unit)
        if following is not None:
            self.fetch(following)
            self._resident.move_to_end(unit)
        self._resident[unit].arriving.wait()
        return self._resident[unit].tensors

    @contextmanager
    def kept_graph(self, unit: int) -> Iterator[None]:
        """Let a graph made inside find the unit's weights again when they are back.

        What it saves of them is where they lie in a buffer, so that the buffer can hold
        other units until this one's backward.
        """
        mine = {
            resident.buffer.untyped_storage()._cdata
            for resident in self._resident.values()
        }

        def pack(tensor: torch.Tensor) -> Any:
            if tensor.untyped_storage()._cdata not in mine:
                return tensor
            place = tensor.storage_offset(), tensor.shape, tensor.stride()
            return _Place(tensor.dtype, *place)

        def unpack(kept: Any) -> torch.Tensor:
            if not isinstance(kept, _Place):
                tensor: torch.Tensor = kept
                return tensor
            buffer = self._resident[unit].buffer
            empty = torch.empty(0, dtype=kept.dtype, device=buffer.device)
            storage = buffer.untyped_storage()
            return empty.set_(storage, kept.offset, kept.shape, kept.stride)

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield

    def drop(self) -> None:
        """Forget what is here: it has changed on the host."""
        for resident in self._resident.values():
            resident.arriving.finish()
            self._free.append(resident.buffer)
        self._resident.clear()
