"""Transposed convolutions over extents that are cut."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from workbench.strategies.spatial.halo import bring
from workbench.strategies.spatial.sliding import FIRST, each
from workbench.strategies.spatial.split import Cut, Span, Split
from workbench.strategies.spatial.windows import Spread, clipped

_TRANSPOSED: dict[int, Callable[..., torch.Tensor]] = {
    1: torch.conv_transpose1d,
    2: torch.conv_transpose2d,
    3: torch.conv_transpose3d,
}


def transposed_convolution(
    x: Split,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Split:
    """Run torch's transposed convolution over a split tensor.

    Kernel and stride 2 on any cut need no halo; others need the smaller side's.
    """
    kernel = tuple(weight.shape[2:])
    count = len(kernel)
    strides, dilations = each(stride, count), each(dilation, count)
    left, more = list(each(padding, count)), list(each(output_padding, count))
    y, outputs, trims = x.local, [], []
    for cut in x.cuts:
        place = cut.dim - FIRST
        spread = Spread(
            kernel=kernel[place],
            stride=strides[place],
            padding=left[place],
            dilation=dilations[place],
            output_padding=more[place],
        )
        output = Cut(dim=cut.dim, axis=cut.axis, sizes=spread.output_sizes(cut.sizes))
        outputs.append(output)
        needed = tuple(
            clipped(spread.needed(span), cut.extent) for span in output.spans
        )
        y = bring(y, x, cut, needed)
        start = needed[x.group(cut).rank()][0]
        trims.append(_Trim.of(spread, cut.dim, start, y.shape[cut.dim], x.span(output)))
        left[place], more[place] = 0, trims[-1].more
    for trim in trims:
        y = trim.fed(y)
    y = _TRANSPOSED[count](y, weight, bias, strides, left, more, groups, dilations)
    for trim in trims:
        if trim.keep < y.shape[trim.dim]:
            # Not a view: FSDP2 could not follow in-place changes of one.
            y = y.narrow(trim.dim, trim.skip, trim.keep).clone()
    return x.holding(y, outputs)


@dataclass(frozen=True, kw_only=True)
class _Trim:
    """Which of the locally computed outputs of one dim are this rank's.

    Args:
        dim: The dim.
        more: Outputs to add at the end.
        skip: Outputs to drop at the beginning.
        keep: Outputs to keep.
        starved: No inputs here, and so no outputs.
    """

    dim: int
    more: int
    skip: int
    keep: int
    starved: bool

    @classmethod
    def of(
        cls, spread: Spread, dim: int, start: int, num_inputs: int, outputs: Span
    ) -> "_Trim":
        if num_inputs == 0:
            return cls(dim=dim, more=0, skip=0, keep=0, starved=True)
        origin = start * spread.stride - spread.padding
        computed = (num_inputs - 1) * spread.stride + spread.reach + 1
        first, end = outputs
        return cls(
            dim=dim,
            more=max(0, end - origin - computed),
            skip=first - origin,
            keep=end - first,
            starved=False,
        )

    def fed(self, y: torch.Tensor) -> torch.Tensor:
        """Give torch one zero to work on where there is nothing."""
        if not self.starved:
            return y
        one = list(y.shape)
        one[self.dim] = 1
        return torch.cat((y, y.new_zeros(one)), self.dim)
