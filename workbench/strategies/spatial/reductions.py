"""Sums, means and losses over extents that are cut.

What comes out whole is the same number on every spatial rank, and its backward is the
adjoint: average gradients over those ranks (see `movement`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.strategies.spatial.halo import recut
from workbench.strategies.spatial.split import Cut, Split


def total(
    x: Split,
    dim: Any = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002 torch's signature
    **options: Any,
) -> Split | torch.Tensor:
    """Run torch.sum over a split tensor."""
    if dim is None or dim == ():
        return x.summed(x.local.sum(**options))
    dims = {d % x.local.dim() for d in ([dim] if isinstance(dim, int) else dim)}
    reduced = x.holding(x.local, [cut for cut in x.cuts if cut.dim in dims])
    y = reduced.summed(x.local.sum(sorted(dims), keepdim=keepdim, **options))
    left = [
        cut if keepdim else _moved(cut, dims) for cut in x.cuts if cut.dim not in dims
    ]
    return x.holding(y, left) if left else y


def _moved(cut: Cut, dropped: set[int]) -> Cut:
    """Return a cut whose dim counts on after other dims are gone."""
    before = sum(dim < cut.dim for dim in dropped)
    return Cut(dim=cut.dim - before, axis=cut.axis, sizes=cut.sizes)


def mean(
    x: Split,
    dim: Any = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002 torch's signature
    **options: Any,
) -> Split | torch.Tensor:
    """Run torch.mean over a split tensor."""
    y = total(x, dim, keepdim, **options)
    count = x.shape.numel() // max(1, y.shape.numel())
    return y.holding(y.local / count) if isinstance(y, Split) else y / count


def adaptive_average_pool(x: Split, output_size: Any) -> Split | torch.Tensor:
    """Run torch's adaptive average pooling to a single element.

    Raises:
        LayoutError: Another output size.
    """
    sizes = {output_size} if isinstance(output_size, int) else set(output_size)
    if sizes != {1}:
        raise LayoutError(
            f"adaptive average pooling to {output_size} over a split tensor",
            hint="to size 1, or a pooling with kernel and stride",
        )
    return mean(x, tuple(range(2, x.local.dim())), True)


def cross_entropy(
    x: Split,
    target: Split,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    **options: Any,
) -> torch.Tensor:
    """Run functional.cross_entropy over split logits and split targets.

    Raises:
        LayoutError: Class weights, no reduction, or targets that do not fit.
    """
    if weight is not None:
        raise LayoutError("cross-entropy with class weights over a split tensor")
    target = _alike(x, target, shift=1)
    summed = functional.cross_entropy(
        x.local, target.local, reduction="sum", ignore_index=ignore_index
    )
    del options
    count = (target.local != ignore_index).sum().to(summed.dtype)
    return _reduced(x, summed, count, reduction)


def _pairwise(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Make the split form of a loss that is a sum over elements."""

    def run(
        x: Split,
        target: Split,
        *args: Any,
        reduction: str = "mean",
        **options: Any,
    ) -> torch.Tensor:
        if args or any(value is not None for value in options.values()):
            raise LayoutError(
                f"{loss.__name__} with further arguments on a split tensor"
            )
        target = _alike(x, target, shift=0)
        summed = loss(x.local, target.local, reduction="sum")
        count = summed.new_tensor(float(x.local.numel()))
        return _reduced(x, summed, count, reduction)

    return run


mse_loss = _pairwise(functional.mse_loss)
l1_loss = _pairwise(functional.l1_loss)
binary_cross_entropy_with_logits = _pairwise(
    functional.binary_cross_entropy_with_logits
)


def _reduced(
    x: Split, summed: torch.Tensor, count: torch.Tensor, reduction: str
) -> torch.Tensor:
    if reduction not in {"mean", "sum"}:
        raise LayoutError(
            f"a loss with reduction={reduction!r} over a split tensor",
            hint='reduction="mean" or "sum"',
        )
    both = x.summed(torch.stack((summed, count)))
    return both[0] / both[1] if reduction == "mean" else both[0]


def _alike(x: Split, target: object, *, shift: int) -> Split:
    """Return targets cut as the predictions are, whose dims count `shift` more."""
    if not isinstance(target, Split):
        raise LayoutError(
            "predictions are cut over spatial axes, targets are not",
            hint=f"cut(targets, mesh, first={2 - shift})",
        )
    cuts = [Cut(dim=c.dim - shift, axis=c.axis, sizes=c.sizes) for c in x.cuts]
    return recut(target, tuple(cuts))
