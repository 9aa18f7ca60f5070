"""Batch, instance and group norm over extents that are cut.

Statistics are summed over the ranks that share the samples, and over no others: under
`dp` each replica norms its own samples, as torch's own norms do. Per cut axis: two
all-reduces of one number per statistic forward, one of two numbers backward
(2C numbers each way for batch norm; Dryden et al. 2019).
"""

import math
from typing import Any

import torch

from workbench.errors import LayoutError
from workbench.strategies.spatial.split import Split


def batch_norm(
    x: Split,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,  # noqa: FBT001, FBT002 torch's signature
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Split:
    """Run functional.batch_norm over a split tensor."""
    dims = (0, *range(2, x.local.dim()))
    if not training:
        assert running_mean is not None, "torch checks this before"
        assert running_var is not None, "torch checks this before"
        scale = (running_var + eps).rsqrt()
        centred = x.local - _channels(running_mean, x.local)
        return x.holding(_scaled(centred * _channels(scale, x.local), weight, bias))
    y, mean, var = _normalise(x, x.local, dims, eps)
    if running_mean is not None and running_var is not None:
        count = x.shape.numel() // x.shape[1]
        with torch.no_grad():
            running_mean.lerp_(mean.reshape(-1), momentum)
            running_var.lerp_(var.reshape(-1) * (count / (count - 1)), momentum)
    return x.holding(_scaled(y, weight, bias))


def instance_norm(
    x: Split,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,  # noqa: FBT001, FBT002 torch's signature
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Split:
    """Run functional.instance_norm over a split tensor.

    Raises:
        LayoutError: Running statistics.
    """
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise LayoutError(
            "instance norm with running statistics over a split tensor",
            hint="track_running_stats=False",
        )
    del momentum
    y, _, _ = _normalise(x, x.local, tuple(range(2, x.local.dim())), eps)
    return x.holding(_scaled(y, weight, bias))


def group_norm(
    x: Split,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> Split:
    """Run functional.group_norm over a split tensor."""
    grouped = x.local.unflatten(1, (num_groups, -1))
    y, _, _ = _normalise(x, grouped, tuple(range(2, grouped.dim())), eps)
    return x.holding(_scaled(y.flatten(1, 2), weight, bias))


def _channels(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return one number per channel in a shape that broadcasts over `like`."""
    return vector.view(-1, *(1,) * (like.dim() - 2))


def _scaled(
    y: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    y = y if weight is None else y * _channels(weight, y)
    return y if bias is None else y + _channels(bias, y)


def _normalise(
    x: Split, value: torch.Tensor, dims: tuple[int, ...], eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (value - mean) / deviation, the mean and the variance over all ranks."""
    statistics = math.prod(value.shape[d] for d in range(value.dim()) if d not in dims)
    count = x.shape.numel() // statistics
    done: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _Normalise.apply(
        value, x, dims, count, eps
    )
    return done


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        value: torch.Tensor,
        x: Split,
        dims: tuple[int, ...],
        count: int,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean = x.summed(value.sum(dims, keepdim=True)) / count
        centred = value - mean
        # The mean first, then squares around it: their difference would cancel.
        var = x.summed(centred.square().sum(dims, keepdim=True)) / count
        scale = (var + eps).rsqrt()
        y = centred.mul_(scale)
        # The input, as torch's norms do: a ReLU in place may follow.
        ctx.save_for_backward(value, mean, scale)
        ctx.route = (x.holding(x.local.detach()), dims, count)
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        value, mean, scale = ctx.saved_tensors
        x, dims, count = ctx.route
        y = (value - mean) * scale
        slope = grads[0]
        sums = torch.stack(
            (slope.sum(dims, keepdim=True), (slope * y).sum(dims, keepdim=True))
        )
        straight, along = x.summed(sums) / count
        return scale * (slope - straight - y * along), None, None, None, None
