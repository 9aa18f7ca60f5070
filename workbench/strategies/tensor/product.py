"""The 1.5D product: weights cut by rows over one axis, the batch over another (S38).

On a grid of P_r x P_c ranks the weight W of a layer with d outputs is cut by rows over
P_r and copied over P_c, the batch B is cut over P_c and copied over P_r. Words that a
rank sends per layer and step (Gholami et al. 2018, 1712.04432, with ring collectives):

- forward, all-gather of the outputs over P_r: `B/P_c * (P_r - 1)/P_r * d`;
- backward, all-reduce of the inputs' gradient over P_r, but for the first layer:
  `2 * B/P_c * (P_r - 1)/P_r * d_in`;
- all-reduce of the weights' gradient over P_c: `2 * (P_c - 1)/P_c * |W|/P_r`.

Which grid sends least depends on the layer: many weights want P_r, many samples P_c.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from workbench.strategies.movement.collective import gather_pieces
from workbench.strategies.pieces import piece_sizes
from workbench.strategies.tensor.edges import sum_backward


def row_product(
    x_bD: torch.Tensor,
    w_fD: torch.Tensor,
    *,
    num_outputs: int,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """Return `x @ W.T` [b, F], all outputs on every rank of the group.

    Args:
        x_bD: This rank's samples, all features; the group's ranks hold copies.
        w_fD: This rank's rows of W, cut as `torch.chunk` cuts.
        num_outputs: F.
        group: The ranks along P_r.
    """
    y_bf = functional.linear(sum_backward(x_bD, group), w_fD)
    sizes = piece_sizes(num_outputs, group.size())
    gathered: torch.Tensor = _GatherCopies.apply(y_bf, sizes, group)
    return gathered


class _GatherCopies(torch.autograd.Function):
    """Gathers columns; the gradient, equal on all ranks, is cut again without traffic."""

    @staticmethod
    def forward(
        ctx: Any, y: torch.Tensor, sizes: Sequence[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        ctx.route = (sizes, group)
        return gather_pieces(y, 1, sizes, group)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        sizes, group = ctx.route
        return grads[0].split(list(sizes), dim=1)[group.rank()], None, None
