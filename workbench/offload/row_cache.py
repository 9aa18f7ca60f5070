"""Rows of a table that is larger than the device, the needed ones on the device (S17).

The mechanism of Fang et al. (arXiv 2208.05321): before each batch the rows that it needs
and the device lacks come in through a bounded buffer, and as many rows that it does not
need go back. Which go is the policy's choice; `dataset` lets those go that are rarest in
the whole data set, which needs the table sorted by frequency.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from workbench.errors import OffloadError
from workbench.offload.lanes import Lanes, Throttle, lanes_between
from workbench.offload.tiers import HostTier, Pool, Tier

Policy = Literal["dataset", "lfu", "lru", "random"]


@dataclass
class CacheCounts:
    """What a cache has done so far.

    Args:
        lookups: Ids asked for, repeats included.
        hits: Of these, ids whose row was on the device when its batch came.
        rows_in, rows_out: Rows that moved, the first filling left out.
    """

    lookups: int = 0
    hits: int = 0
    rows_in: int = 0
    rows_out: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of lookups that hit; 1.0 before the first."""
        return self.hits / self.lookups if self.lookups else 1.0


@dataclass(frozen=True)
class _Mirror:
    """A table and its cached rows."""

    host: torch.Tensor
    device: torch.Tensor


class RowCache:
    """Which rows of a table are on the device, and where.

    Args:
        host: The table, float [R, D], in host or disk memory; it is the truth only for
            rows that are not cached, until `flush`.
        device: The cached rows, float [C, D].
        policy: Who goes when room is needed.
        buffer_rows: Most rows that move at once.
        tier: Of the table, for the buffer's memory.
        warm: Begin with the first C rows, the most frequent of a sorted table.
        seed: Of the random policy.
        throttle: A link to behave like (CPU-only machines).

    Raises:
        OffloadError: A cache of no rows or of more than the table has.
    """

    def __init__(
        self,
        host: torch.Tensor,
        device: torch.Tensor,
        *,
        policy: Policy,
        tier: Tier,
        buffer_rows: int = 4096,
        warm: bool | None = None,
        seed: int = 0,
        throttle: Throttle | None = None,
    ) -> None:
        num_rows, num_cached = len(host), len(device)
        if not 1 <= num_cached <= num_rows or buffer_rows < 1:
            raise OffloadError(
                f"a cache of {num_cached} rows with a buffer of {buffer_rows} for a "
                f"table of {num_rows}",
                hint=f"between 1 and {num_rows} rows, and a buffer of at least 1",
            )
        self.counts = CacheCounts()
        self._mirrors = [_Mirror(host, device)]
        self._tier = tier
        self._pool = Pool(tier)
        self._buffer_rows = buffer_rows
        pinned = isinstance(tier, HostTier) and tier.pinned
        self._lanes: Lanes = lanes_between(
            device.device, pinned=pinned, throttle=throttle
        )
        self._keys = _victim_order(policy, seed)
        #: Slot of each row, -1 where it has none; row of each slot, -1 where it is free.
        self._slot_of = torch.full((num_rows,), -1)
        self._row_of = torch.full((num_cached,), -1)
        self._uses = torch.zeros(num_rows, dtype=torch.int64)
        self._last_use = torch.full((num_rows,), -1)
        self._clock = 0
        if policy == "dataset" if warm is None else warm:
            self._bring(torch.arange(num_cached), torch.arange(num_cached))
            self.counts = CacheCounts()

    @property
    def num_cached(self) -> int:
        """Rows that the device has room for."""
        return len(self._row_of)

    def follow(self, device: torch.Tensor, *, initial: float = 0.0) -> None:
        """Let a further tensor [C, ...], such as an optimizer's state, move along.

        Args:
            device: Rows by slot, like the cached weights.
            initial: Value of rows that were never on the device.
        """
        shape = (len(self._slot_of), *device.shape[1:])
        host = self._tier.empty(shape, device.dtype).fill_(initial)
        self._mirrors.append(_Mirror(host, device))

    def prepare(self, *batches: torch.Tensor, keep: torch.Tensor | None = None) -> None:
        """Bring in all rows that some batches need, in one go.

        Args:
            batches: Row numbers, int64, any shape, on the CPU.
            keep: Row numbers that must stay although no batch here needs them, e.g.
                those of a batch that computes at this moment.

        Raises:
            OffloadError: The batches need more different rows than the cache holds.
        """
        rows = torch.cat([batch.flatten() for batch in batches])
        needed, counts = torch.unique(rows, return_counts=True)
        staying = needed if keep is None else torch.unique(torch.cat([needed, keep]))
        if len(staying) > self.num_cached:
            raise OffloadError(
                f"these batches need {len(staying)} different rows on the device, the "
                f"cache holds {self.num_cached}",
                hint=f"use at least {len(staying)} rows, or smaller batches",
            )
        self._count(rows, needed, counts)
        missing = needed[self._slot_of[needed] < 0]
        if len(missing):
            self._bring(missing, self._make_room(len(missing), staying))

    def slots(self, rows: torch.Tensor) -> torch.Tensor:
        """Return where prepared rows are on the device, shaped as asked."""
        return self._slot_of[rows]

    def flush(self) -> None:
        """Write every cached row back to the table; they stay cached."""
        slots = torch.nonzero(self._row_of >= 0).flatten()
        self._move(self._row_of[slots], slots, outward=True)

    def close(self) -> None:
        """Write back and end the lanes."""
        self.flush()
        self._lanes.close()

    def _count(
        self, rows: torch.Tensor, needed: torch.Tensor, counts: torch.Tensor
    ) -> None:
        self.counts.lookups += len(rows)
        self.counts.hits += int((self._slot_of[rows] >= 0).sum())
        self._uses[needed] += counts
        moments = torch.arange(self._clock, self._clock + len(rows))
        self._last_use.scatter_reduce_(0, rows, moments, reduce="amax")
        self._clock += len(rows)

    def _make_room(self, num_rows: int, staying: torch.Tensor) -> torch.Tensor:
        """Return free slots, after the policy has sent away as many as it must."""
        free = torch.nonzero(self._row_of < 0).flatten()
        lacking = num_rows - len(free)
        if lacking > 0:
            cached = self._row_of[self._row_of >= 0]
            candidates = cached[~torch.isin(cached, staying)]
            order = self._keys(candidates, self._uses, self._last_use)
            self._send(candidates[order[:lacking]])
            free = torch.nonzero(self._row_of < 0).flatten()
        return free[:num_rows]

    def _send(self, rows: torch.Tensor) -> None:
        slots = self._slot_of[rows]
        self._move(rows, slots, outward=True)
        self._row_of[slots] = -1
        self._slot_of[rows] = -1
        self.counts.rows_out += len(rows)

    def _bring(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        self._move(rows, slots, outward=False)
        self._row_of[slots] = rows
        self._slot_of[rows] = slots
        self.counts.rows_in += len(rows)

    def _move(self, rows: torch.Tensor, slots: torch.Tensor, *, outward: bool) -> None:
        """Move rows through the bounded buffer, every mirrored tensor alike."""
        for mirror in self._mirrors:
            for some_rows, some_slots in zip(
                rows.split(self._buffer_rows),
                slots.split(self._buffer_rows),
                strict=True,
            ):
                self._move_some(mirror, some_rows, some_slots, outward=outward)

    def _move_some(
        self,
        mirror: _Mirror,
        rows: torch.Tensor,
        slots: torch.Tensor,
        *,
        outward: bool,
    ) -> None:
        device, host = mirror.device.data, mirror.host
        slots = slots.to(device.device)
        shape = (len(rows), *device.shape[1:])
        num_bytes = self._buffer_rows * max(1, device[0].numel()) * host.itemsize
        buffer = self._pool.take(num_bytes)
        here = buffer.view(host.dtype)[: len(rows) * device[0].numel()].view(shape)
        if outward:
            there = device.index_select(0, slots)
            self._lanes.outward.copy([(here, there)]).finish()
            host.index_copy_(0, rows, here)
        else:
            torch.index_select(host, 0, rows, out=here)
            there = torch.empty(shape, dtype=device.dtype, device=device.device)
            arriving = self._lanes.inward.copy([(there, here)])
            arriving.wait()
            arriving.finish()  # the buffer is written again for the next rows
            device.index_copy_(0, slots, there)
        self._pool.give(buffer)


#: Takes candidate rows, uses and last uses by row; returns the candidates' order of
#: leaving.
VictimOrder = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _victim_order(policy: Policy, seed: int) -> VictimOrder:
    generator = torch.Generator().manual_seed(seed)
    orders: dict[Policy, VictimOrder] = {
        # Rows are sorted by frequency: the largest number is the rarest row.
        "dataset": lambda rows, *_: torch.argsort(rows, descending=True),
        "lru": lambda rows, _, last_use: torch.argsort(last_use[rows]),
        # Among equally frequent ones the one that was used longest ago.
        "lfu": lambda rows, uses, last_use: _sorted_by(uses[rows], last_use[rows]),
        "random": lambda rows, *_: torch.randperm(len(rows), generator=generator),
    }
    if policy not in orders:
        raise OffloadError(
            f"no cache policy is called {policy!r}", hint=f"one of {', '.join(orders)}"
        )
    return orders[policy]


def _sorted_by(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    order = torch.argsort(second)
    return order[torch.argsort(first[order], stable=True)]


def frequency_order(
    batches: Sequence[torch.Tensor], num_rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how often each id occurs in a data set, and the ids sorted by that.

    Returns:
        Counts by id, and the ids from the most to the least frequent (of equals the
        smaller first), both int64 [num_rows].
    """
    counts = torch.zeros(num_rows, dtype=torch.int64)
    for batch in batches:
        counts += torch.bincount(batch.flatten(), minlength=num_rows)
    return counts, torch.argsort(counts, descending=True, stable=True)
