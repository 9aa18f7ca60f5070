"""Broadcast, sums and gathers as torch's collectives, each with its adjoint.

The bytes are those of the collective itself (`planner.backend.sent_bytes`), forward and
backward; a group of one rank moves nothing.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from workbench.errors import LayoutError


def nothing(
    *, dtype: torch.dtype, device: torch.device, num_dims: int = 1
) -> torch.Tensor:
    """Return an empty tensor that asks for a gradient: stands for data elsewhere.

    Ranks must ask for gradients alike, or one would miss the others' backward.
    """
    return torch.empty((0,) * num_dims, dtype=dtype, device=device, requires_grad=True)


def broadcast(
    x: torch.Tensor, *, shape: Sequence[int], group: dist.ProcessGroup, root: int = 0
) -> torch.Tensor:
    """Give every rank a copy of the root's tensor; the adjoint is `sum_reduce`.

    Args:
        x: The tensor on the root, `nothing` elsewhere.
        shape: Its shape, known to all.
        group: The ranks.
        root: Who holds it, counted in the group.
    """
    copied: torch.Tensor = _Broadcast.apply(x, tuple(shape), group, root)
    return copied


def sum_reduce(
    x: torch.Tensor, *, group: dist.ProcessGroup, root: int = 0
) -> torch.Tensor:
    """Give the root the sum over ranks, the others `nothing`; adjoint: `broadcast`."""
    summed: torch.Tensor = _SumReduce.apply(x, group, root)
    return summed


def all_sum_reduce(x: torch.Tensor, *, group: dist.ProcessGroup) -> torch.Tensor:
    """Give every rank the sum over ranks; it is its own adjoint."""
    summed: torch.Tensor = _AllSumReduce.apply(x, group)
    return summed


def all_gather(
    x: torch.Tensor, *, dim: int, sizes: Sequence[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """Give every rank the ranks' pieces side by side; the adjoint is `reduce_scatter`.

    Uneven pieces are padded to the largest on the way: the payload is
    `len(sizes) * max(sizes) * other extents`.

    Args:
        x: This rank's piece.
        dim: The dim along which the pieces stand.
        sizes: Each rank's extent in it, 0 allowed.
        group: The ranks.

    Raises:
        LayoutError: `x` is not of this rank's size.
    """
    _check_sizes(x.shape[dim], sizes, group)
    gathered: torch.Tensor = _AllGather.apply(x, dim, tuple(sizes), group)
    return gathered


def reduce_scatter(
    x: torch.Tensor, *, dim: int, sizes: Sequence[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """Give each rank its piece of the sum over ranks; the adjoint is `all_gather`.

    Padding and arguments as in `all_gather`; `x` is the whole.

    Raises:
        LayoutError: `x` is not as large as all sizes together.
    """
    if x.shape[dim] != sum(sizes):
        raise LayoutError(
            f"sizes {tuple(sizes)} add up to {sum(sizes)}, dim {dim} has {x.shape[dim]}"
        )
    scattered: torch.Tensor = _ReduceScatter.apply(x, dim, tuple(sizes), group)
    return scattered


def _check_sizes(held: int, sizes: Sequence[int], group: dist.ProcessGroup) -> None:
    if len(sizes) != group.size() or sizes[group.rank()] != held:
        raise LayoutError(
            f"rank {group.rank()} of {group.size()} brings {held}, sizes are "
            f"{tuple(sizes)}"
        )


def _copy(x: torch.Tensor) -> torch.Tensor:
    """Return a copy that a collective may write to, whatever the strides of `x`."""
    return x.clone(memory_format=torch.contiguous_format)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        shape: tuple[int, ...],
        group: dist.ProcessGroup,
        root: int,
    ) -> torch.Tensor:
        ctx.group, ctx.root, ctx.given = group, root, x.shape
        copy = _copy(x) if group.rank() == root else x.new_empty(shape)
        if group.size() > 1:
            dist.broadcast(copy, group=group, group_src=root)
        return copy

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        summed = _SumReduce.apply(grads[0], ctx.group, ctx.root)
        return summed.reshape(ctx.given), None, None, None


class _SumReduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, group: dist.ProcessGroup, root: int
    ) -> torch.Tensor:
        ctx.group, ctx.root, ctx.given = group, root, x.shape
        summed = _copy(x)
        if group.size() > 1:
            dist.reduce(summed, group=group, group_dst=root)
        return summed if group.rank() == root else x.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _Broadcast.apply(grads[0], ctx.given, ctx.group, ctx.root), None, None


class _AllSumReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        summed = _copy(x)
        if group.size() > 1:
            dist.all_reduce(summed, group=group)
        return summed

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _AllSumReduce.apply(grads[0], ctx.group), None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        dim: int,
        sizes: tuple[int, ...],
        group: dist.ProcessGroup,
    ) -> torch.Tensor:
        ctx.route = (dim, sizes, group)
        return gather_pieces(x, dim, sizes, group)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _ReduceScatter.apply(grads[0], *ctx.route), None, None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        dim: int,
        sizes: tuple[int, ...],
        group: dist.ProcessGroup,
    ) -> torch.Tensor:
        ctx.route = (dim, sizes, group)
        return sum_pieces(x, dim, sizes, group)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _AllGather.apply(grads[0], *ctx.route), None, None, None


def gather_pieces(
    x: torch.Tensor, dim: int, sizes: Sequence[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """All-gather without autograd."""
    if group.size() == 1 or max(sizes) == 0:
        return _copy(x)
    first, largest = x.movedim(dim, 0), max(sizes)
    padded = first.new_zeros((largest, *first.shape[1:]))
    padded[: first.shape[0]] = first
    gathered = first.new_empty((largest * len(sizes), *first.shape[1:]))
    dist.all_gather_single(gathered, padded, group=group)
    if min(sizes) < largest:
        slots = gathered.split(largest)
        gathered = torch.cat([s[:n] for s, n in zip(slots, sizes, strict=True)])
    return gathered.movedim(0, dim).contiguous()


def sum_pieces(
    x: torch.Tensor, dim: int, sizes: Sequence[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """Reduce-scatter without autograd."""
    if group.size() == 1 or max(sizes) == 0:
        return _copy(x)
    first, largest = x.movedim(dim, 0), max(sizes)
    if min(sizes) < largest:
        padded = first.new_zeros((largest * len(sizes), *first.shape[1:]))
        pieces = first.split(list(sizes))
        for slot, piece in zip(padded.split(largest), pieces, strict=True):
            slot[: piece.shape[0]] = piece
        first = padded
    summed = first.new_empty((largest, *first.shape[1:]))
    dist.reduce_scatter_single(summed, first.contiguous(), group=group)
    return summed[: sizes[group.rank()]].movedim(0, dim).contiguous()
