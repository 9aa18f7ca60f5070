"""Rows that go to other ranks in numbers known only at run time."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from workbench.errors import LayoutError


def exchange_counts(counts: torch.Tensor, *, group: dist.ProcessGroup) -> torch.Tensor:
    """Tell each rank one row of numbers; returns what each rank told this one.

    Args:
        counts: [ranks, ...] integers; row r goes to rank r.
        group: The ranks.
    """
    told = torch.empty_like(counts)
    dist.all_to_all_single(told, counts.contiguous(), group=group)
    return told


def exchange_rows(
    x: torch.Tensor,
    *,
    sent: Sequence[int],
    received: Sequence[int],
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """Send the first `sent[0]` rows to rank 0, the next `sent[1]` to rank 1, and so on.

    One uneven all-to-all; the adjoint sends the rows back. A rank puts
    `(sum(sent) - sent[own]) * row` elements on the wire.

    Args:
        x: [rows, ...], grouped by receiver.
        sent: Rows for each rank, 0 allowed.
        received: Rows from each rank (`exchange_counts` of what they send).
        group: The ranks.

    Raises:
        LayoutError: Counts that do not fit `x` or the group.
    """
    if not len(sent) == len(received) == group.size() or sum(sent) != len(x):
        raise LayoutError(
            f"{len(x)} rows, {sum(sent)} of them sent to {len(sent)} ranks, in a group "
            f"of {group.size()}"
        )
    exchanged: torch.Tensor = _ExchangeRows.apply(
        x, tuple(sent), tuple(received), group
    )
    return exchanged


class _ExchangeRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        sent: tuple[int, ...],
        received: tuple[int, ...],
        group: dist.ProcessGroup,
    ) -> torch.Tensor:
        ctx.route = (received, sent, group)
        rows = x.new_empty((sum(received), *x.shape[1:]))
        dist.all_to_all_single(
            rows, x.contiguous(), list(received), list(sent), group=group
        )
        return rows

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _ExchangeRows.apply(grads[0], *ctx.route), None, None, None
