"""The edges of a tensor-parallel region: where activations become whole, and split.

Outside a region all ranks hold copies of one activation, which counts once (its
gradients are copies too), or, with sequence parallelism, each its piece of the tokens.
Inside, each rank computes its share of the features.

Per region and micro-batch, with `T*D` elements of a whole activation (Korthikanti 2022,
section 4.2): without sequence parallelism one all-reduce of it forward (at `leave`) and
one backward (at `enter`); with it an all-gather and a reduce-scatter of it each way.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from workbench.strategies import movement
from workbench.strategies.movement.collective import gather_pieces

#: [B, T, ...]
_TOKENS = 1


class Edges:
    """Enter and leave the regions of one tensor-parallel net.

    Args:
        mesh: The axis' own mesh, of one dim.
        sequence: Whether tokens are split outside the regions.
    """

    def __init__(self, mesh: DeviceMesh, *, sequence: bool) -> None:
        self.mesh = mesh
        self.sequence = sequence
        self._num_tokens = 0

    @property
    def group(self) -> dist.ProcessGroup:
        """The axis' group, by name at each use: it may have been formed again."""
        return self.mesh.get_group()

    @property
    def _sizes(self) -> tuple[int, ...]:
        return movement.balanced_sizes(self._num_tokens, self.group.size())

    def expect(self, num_tokens: int) -> None:
        """Say how many tokens come, on a pipeline stage that does not cut them itself."""
        self._num_tokens = num_tokens

    def cut(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Keep this rank's piece of the tokens of a copied activation.

        Backward gathers the pieces. Without sequence parallelism `x` stays as it is.
        """
        if not self.sequence:
            return x_BTD
        self._num_tokens = x_BTD.shape[_TOKENS]
        piece: torch.Tensor = _Cut.apply(x_BTD, self._sizes, self.group)
        return piece

    def enter(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Give all features the whole activation; backward sums what they ask of it."""
        if self.sequence:
            return movement.all_gather(
                x_BTD, dim=_TOKENS, sizes=self._sizes, group=self.group
            )
        return sum_backward(x_BTD, self.group)

    def leave(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Sum the ranks' shares of an activation, whole or to each its tokens."""
        if self.sequence:
            return movement.reduce_scatter(
                x_BTD, dim=_TOKENS, sizes=self._sizes, group=self.group
            )
        return sum_copies(x_BTD, self.group)


def sum_copies(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Give every rank a copy of the sum; its gradient, a copy as well, passes as it is."""
    summed: torch.Tensor = _SumForward.apply(x, group)
    return summed


def sum_backward(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Give copies as they are; backward sums what the ranks ask of their copy."""
    entered: torch.Tensor = _SumBackward.apply(x, group)
    return entered


class _SumBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _SumForward.apply(grads[0], ctx.group), None


class _SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        summed = x.clone(memory_format=torch.contiguous_format)
        if group.size() > 1:
            dist.all_reduce(summed, group=group)
        return summed

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _SumBackward.apply(grads[0], ctx.group), None


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, sizes: tuple[int, ...], group: dist.ProcessGroup
    ) -> torch.Tensor:
        ctx.route = (sizes, group)
        return x.split(list(sizes), dim=_TOKENS)[group.rank()].clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        sizes, group = ctx.route
        return gather_pieces(grads[0], _TOKENS, sizes, group), None, None
