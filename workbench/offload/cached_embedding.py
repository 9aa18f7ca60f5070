"""Embedding tables larger than the device: one rank, or columns over several."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from workbench.errors import OffloadError
from workbench.offload.lanes import Throttle
from workbench.offload.row_cache import Policy, RowCache
from workbench.offload.tiers import Tier


class CachedEmbedding(nn.Module):
    """Looks up rows of a table whose frequent rows are on the device.

    Training is synchronous and exact: gradients are sparse, they change the cached rows,
    and rows that leave take their values (and optimizer states) with them.

    Args:
        table: Initial values, float [R, D]; copied into the tier, sorted.
        num_cached: Rows that the device holds.
        tier: Where the table lives.
        device: Where rows are looked up.
        policy: Who leaves the device first.
        order: Ids from the most to the least frequent, see `frequency_order`; None
            where ids are numbered so already.
        buffer_rows: Most rows that move at once.
        throttle: A link to behave like (CPU-only machines).
    """

    def __init__(
        self,
        table: torch.Tensor,
        *,
        num_cached: int,
        tier: Tier,
        device: torch.device,
        policy: Policy = "dataset",
        order: torch.Tensor | None = None,
        buffer_rows: int = 4096,
        throttle: Throttle | None = None,
    ) -> None:
        super().__init__()
        num_rows = len(table)
        order = torch.arange(num_rows) if order is None else order
        #: Row of each id in the sorted table.
        self._row_of = torch.empty_like(order)
        self._row_of[order] = torch.arange(num_rows)
        self._table = tier.empty(table.shape, table.dtype)
        torch.index_select(table.detach(), 0, order, out=self._table)
        rows = torch.zeros(num_cached, table.shape[1], dtype=table.dtype, device=device)
        self.weight = nn.Parameter(rows)
        self.cache = RowCache(
            self._table,
            self.weight.data,
            policy=policy,
            tier=tier,
            buffer_rows=buffer_rows,
            throttle=throttle,
        )
        self._followed: set[int] = set()

    def prefetch(self, *batches: torch.Tensor) -> None:
        """Bring in what coming batches need, all at once.

        Raises:
            OffloadError: Together they need more rows than the cache holds.
        """
        self.cache.prepare(*(self._row_of[batch] for batch in batches))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Ids of any shape, int64 on the CPU -> vectors [..., D] on the device.

        Raises:
            OffloadError: The batch needs more different rows than the cache holds.
        """
        rows = self._row_of[ids]
        self.cache.prepare(rows)
        slots = self.cache.slots(rows).to(self.weight.device)
        return nn.functional.embedding(slots, self.weight, sparse=True)

    def follow(self, optimizer: torch.optim.Optimizer, *, initial: float = 0.0) -> None:
        """Let the optimizer's states of rows move with them; call it after each step.

        Only new states cost anything.

        Args:
            optimizer: One that takes sparse gradients: SGD, SparseAdam, Adagrad.
            initial: What its states begin with (Adagrad's accumulator).
        """
        for state in optimizer.state[self.weight].values():
            if (
                torch.is_tensor(state)
                and state.shape == self.weight.shape
                and id(state) not in self._followed
            ):
                self._followed.add(id(state))
                self.cache.follow(state, initial=initial)

    def table(self) -> torch.Tensor:
        """Return the whole table by id, cached rows included, as it is now."""
        self.cache.flush()
        return self._table[self._row_of]

    def close(self) -> None:
        """Write back and end the threads."""
        self.cache.close()


class ColumnSplitEmbedding(nn.Module):
    """A table whose columns are spread over the ranks of a group.

    Every rank looks up its columns for the samples of all ranks; an all-to-all brings
    each sample's vector together where the sample is. All ranks bring equally many ids.

    Args:
        columns: This rank's columns of all rows (a `CachedEmbedding`, or any module
            from ids to vectors).
        group: The ranks; column blocks in order of rank.
    """

    def __init__(self, columns: nn.Module, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.columns = columns
        self._group = group

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """This rank's ids [B, ...] -> whole vectors [B, ..., D]."""
        num_ranks = dist.get_world_size(self._group)
        everyone = torch.empty(num_ranks * ids.numel(), dtype=ids.dtype)
        dist.all_gather_single(everyone, ids.flatten(), group=self._group)
        # [N x B, d]: my columns of everybody's samples -> everybody's columns of mine.
        mine = self.columns(everyone)
        parts: torch.Tensor = _AllToAll.apply(mine, self._group)
        parts = parts.view(num_ranks, ids.numel(), mine.shape[-1])
        return parts.movedim(0, 1).reshape(*ids.shape, -1)


class _AllToAll(torch.autograd.Function):
    """Sends equal parts of dim 0 to each rank; gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return _all_to_all(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _all_to_all(gradients[0], ctx.group), None


def _all_to_all(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    received = torch.empty_like(x, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, x.contiguous(), group=group)
    return received


def columns_of(table: torch.Tensor, *, part: int, num_parts: int) -> torch.Tensor:
    """Return one of several equal blocks of a table's columns.

    Raises:
        OffloadError: The columns do not divide.
    """
    if table.shape[1] % num_parts:
        raise OffloadError(
            f"{table.shape[1]} columns do not divide by {num_parts} ranks",
            hint="use a width that is a multiple of the ranks",
        )
    width = table.shape[1] // num_parts
    return table[:, part * width : (part + 1) * width].contiguous()


def joined(features: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    """Number the values of several categorical features through, for one table.

    Args:
        features: Ids of each feature, int64 [B].
        sizes: How many values each has.

    Returns:
        Ids into a table of sum(sizes) rows, int64 [B, features].
    """
    offsets = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    return torch.stack(list(features), dim=1) + offsets
