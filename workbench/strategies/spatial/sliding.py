"""Convolutions and poolings: bring the halos, pad at the outer borders, run locally.

Traffic forward and backward alike, per cut dim and pair of neighbours: a message of
`halo * other local extents` elements each way, later dims widened by earlier dims'
halos so that corners come along (after Dryden et al. 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.strategies.spatial.halo import Overlapped, bring
from workbench.strategies.spatial.split import Cut, Span, Split
from workbench.strategies.spatial.windows import Window, clipped

#: Features have batch and channels before their extents.
FIRST = 2


@dataclass(frozen=True, kw_only=True)
class Sliding:
    """A local operation and its window in each cut dim.

    Args:
        run: Takes inputs that are padded in the cut dims already.
        windows: By position among the cuts.
        fill: What stands in the padding.
    """

    run: Callable[[torch.Tensor], torch.Tensor]
    windows: tuple[Window, ...]
    fill: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Part:
    """Inputs along one dim, where they begin, and the outputs they shall give."""

    cut: Cut
    window: Window
    start: int
    outputs: Span


def slide(x: Split, sliding: Sliding, *, overlap: bool) -> Split:
    """Run a sliding operation over a split tensor."""
    outputs = [
        Cut(dim=cut.dim, axis=cut.axis, sizes=window.output_sizes(cut.sizes))
        for cut, window in zip(x.cuts, sliding.windows, strict=True)
    ]
    y = x.local
    parts: list[Part] = []
    stages = list(zip(x.cuts, outputs, sliding.windows, strict=True))
    for index, (cut, output, window) in enumerate(stages):
        needed = tuple(
            clipped(window.needed(span), cut.extent) for span in output.spans
        )
        at_home = all(
            held[0] <= start and stop <= held[1]
            for (start, stop), held in zip(needed, cut.spans, strict=True)
        )
        mine = x.span(output)
        if overlap and not at_home and index == len(stages) - 1:
            last = Part(cut=cut, window=window, start=x.span(cut)[0], outputs=mine)
            y = _overlapped(y, x, needed, parts, last, sliding)
            return x.holding(y, outputs)
        start = x.span(cut)[0]
        if not at_home:
            y = bring(y, x, cut, needed)
            start = needed[x.group(cut).rank()][0]
        parts.append(Part(cut=cut, window=window, start=start, outputs=mine))
    return x.holding(_run(y, parts, sliding), outputs)


def _overlapped(
    y: torch.Tensor,
    x: Split,
    needed: tuple[Span, ...],
    parts: list[Part],
    last: Part,
    sliding: Sliding,
) -> torch.Tensor:
    """Compute the outputs that need no halo while the halos are on their way."""
    held, extent, dim = x.span(last.cut), last.cut.extent, last.cut.dim
    halos = Overlapped(x, last.cut, needed, y.shape)
    y, token = halos.start(y)
    first, end = last.outputs
    begin_inner, end_inner = last.window.inside(last.outputs, held, extent)

    def run(inputs: torch.Tensor, start: int, outputs: Span) -> torch.Tensor:
        part = Part(cut=last.cut, window=last.window, start=start, outputs=outputs)
        return _run(inputs, [*parts, part], sliding)

    inner = None
    if begin_inner < end_inner:
        inner = run(y, held[0], (begin_inner, end_inner))
    below, above = halos.finish(token)
    start = held[0] - below.shape[dim]
    if inner is None:
        return run(torch.cat((below, y, above), dim), start, last.outputs)
    found = [inner]
    if first < begin_inner:
        stop = last.window.needed((first, begin_inner))[1]
        edge = y.narrow(dim, 0, min(stop, held[1]) - held[0])
        found.insert(0, run(torch.cat((below, edge), dim), start, (first, begin_inner)))
    if end_inner < end:
        begin = max(last.window.needed((end_inner, end))[0], held[0])
        edge = y.narrow(dim, begin - held[0], held[1] - begin)
        found.append(run(torch.cat((edge, above), dim), begin, (end_inner, end)))
    if first == begin_inner and end_inner == end:
        # The backward of `finish` must run here as it does at the neighbours.
        found.append(_joined(inner.narrow(dim, 0, 0), below, above))
    return torch.cat(found, dim)


def _joined(y: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """Return `y`, with the others in its graph though not in its value."""
    nothing = sum(other.narrow(0, 0, 0).sum() for other in others)
    return y + nothing


def _run(y: torch.Tensor, parts: Sequence[Part], sliding: Sliding) -> torch.Tensor:
    """Take what the outputs need of each dim, pad at the borders, run."""
    padding = [0] * (2 * y.dim())
    empty = []
    for part in parts:
        dim = part.cut.dim
        if part.outputs[0] == part.outputs[1]:
            # One output over zeros, cut off below: keeps the graph and the shapes.
            zeros = list(y.shape)
            zeros[dim] = part.window.reach + 1
            y = torch.cat((y.narrow(dim, 0, 0), y.new_zeros(zeros)), dim)
            empty.append(dim)
            continue
        wanted = part.window.needed(part.outputs)
        start, stop = clipped(wanted, part.cut.extent)
        y = y.narrow(dim, start - part.start, stop - start)
        # functional.pad counts dims from the last.
        place = 2 * (y.dim() - 1 - dim)
        padding[place : place + 2] = [start - wanted[0], wanted[1] - stop]
    if any(padding):
        y = functional.pad(y, padding, value=sliding.fill)
    y = sliding.run(y)
    for dim in empty:
        y = y.narrow(dim, 0, 0).clone()
    return y


def each(value: Any, count: int) -> tuple[int, ...]:
    """Return torch's int-or-sequence argument as one number per dim."""
    if isinstance(value, int):
        return (value,) * count
    numbers = tuple(int(number) for number in value)
    return numbers * count if len(numbers) == 1 else numbers


def _windows(
    x: Split,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[tuple[Window, ...], list[int]]:
    """Return the cut dims' windows, and the padding that is left to torch."""
    left, windows = list(padding), []
    for cut in x.cuts:
        place = cut.dim - FIRST
        left[place] = 0
        windows.append(
            Window(
                kernel=kernel[place],
                stride=stride[place],
                padding=padding[place],
                dilation=dilation[place],
            )
        )
    return tuple(windows), left


_CONVOLUTIONS: dict[int, Callable[..., torch.Tensor]] = {
    1: torch.conv1d,
    2: torch.conv2d,
    3: torch.conv3d,
}


def convolution(
    x: Split,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Split:
    """Run torch.conv1d, conv2d or conv3d over a split tensor.

    Raises:
        LayoutError: "same" padding of an even kernel, which is not symmetric.
    """
    kernel = tuple(weight.shape[2:])
    count = len(kernel)
    strides, dilations = each(stride, count), each(dilation, count)
    if padding == "same":
        reaches = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        if any(reach % 2 for reach in reaches):
            raise LayoutError(
                f'padding="same" of a kernel {kernel} is uneven',
                hint="use an odd kernel, or pad before the convolution",
            )
        padding = [reach // 2 for reach in reaches]
    elif padding == "valid":
        padding = 0
    windows, left = _windows(x, kernel, strides, each(padding, count), dilations)

    def run(y: torch.Tensor) -> torch.Tensor:
        return _CONVOLUTIONS[count](y, weight, bias, strides, left, dilations, groups)

    return slide(x, Sliding(run=run, windows=windows), overlap=x.overlap)


_MAX_POOLS: dict[int, Callable[..., torch.Tensor]] = {
    1: torch.max_pool1d,
    2: torch.max_pool2d,
    3: torch.max_pool3d,
}


def max_pool(
    x: Split,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 torch's signature
    return_indices: bool = False,  # noqa: FBT001, FBT002 torch's signature
) -> Split:
    """Run torch's max pooling over a split tensor.

    Raises:
        LayoutError: ceil_mode, return_indices.
    """
    if return_indices:
        raise LayoutError("max pooling with return_indices=True over a split tensor")
    count = x.local.dim() - FIRST
    _refuse_ceil(ceil_mode)
    kernel, dilations = each(kernel_size, count), each(dilation, count)
    strides = each(stride or kernel_size, count)
    windows, left = _windows(x, kernel, strides, each(padding, count), dilations)

    def run(y: torch.Tensor) -> torch.Tensor:
        return _MAX_POOLS[count](y, kernel, strides, left, dilations)

    sliding = Sliding(run=run, windows=windows, fill=-torch.inf)
    return slide(x, sliding, overlap=False)


_AVERAGE_POOLS: dict[int, Callable[..., torch.Tensor]] = {
    1: torch.avg_pool1d,
    2: functional.avg_pool2d,
    3: functional.avg_pool3d,
}


def average_pool(
    x: Split,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 torch's signature
    count_include_pad: bool = True,  # noqa: FBT001, FBT002 torch's signature
    divisor_override: int | None = None,
) -> Split:
    """Run torch's average pooling over a split tensor.

    Raises:
        LayoutError: ceil_mode, padding that does not count, a divisor of one's own.
    """
    if divisor_override is not None:
        raise LayoutError("average pooling with divisor_override over a split tensor")
    count = x.local.dim() - FIRST
    _refuse_ceil(ceil_mode)
    paddings = each(padding, count)
    if any(paddings) and not count_include_pad:
        raise LayoutError(
            "average pooling with count_include_pad=False over a split tensor",
            hint="count_include_pad=True, or padding 0",
        )
    kernel, strides = each(kernel_size, count), each(stride or kernel_size, count)
    windows, left = _windows(x, kernel, strides, paddings, (1,) * count)

    def run(y: torch.Tensor) -> torch.Tensor:
        return _AVERAGE_POOLS[count](y, kernel, strides, left)

    return slide(x, Sliding(run=run, windows=windows), overlap=False)


def _refuse_ceil(ceil_mode: object) -> None:
    if ceil_mode:
        raise LayoutError(
            "pooling with ceil_mode=True over a split tensor",
            hint="ceil_mode=False, or an extent that the stride divides",
        )
