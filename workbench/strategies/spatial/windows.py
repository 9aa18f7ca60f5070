"""Which inputs a sliding window needs for which outputs, in one dim; pure arithmetic.

An output belongs to the rank that holds its window's centre. So kernel k with padding
(k - 1)/2 and stride 1 needs floor(k/2) planes from each neighbour (Dryden 2019), k = 2
with stride 2 on even extents needs none, and any other case what its windows overlap.
"""

from dataclasses import dataclass

from workbench.errors import LayoutError
from workbench.strategies.movement.boxes import spans

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window sliding along one dim.

    Args:
        kernel: Elements it looks at.
        stride: Inputs between neighbouring outputs.
        padding: Elements added at both ends.
        dilation: Inputs between elements it looks at.
    """

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Inputs from a window's first to its last element."""
        return self.dilation * (self.kernel - 1)

    def num_outputs(self, extent: int) -> int:
        """Return the outputs of a whole dim.

        Raises:
            LayoutError: The window is wider than the padded dim.
        """
        room = extent + 2 * self.padding - self.reach - 1
        if room < 0:
            raise LayoutError(
                f"a window of {self.reach + 1} on an extent of {extent} with padding "
                f"{self.padding}"
            )
        return room // self.stride + 1

    def output_sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return each rank's outputs.

        >>> Window(kernel=3, stride=2, padding=1).output_sizes((5, 4))
        (3, 2)
        >>> Window(kernel=3).output_sizes((4, 4))
        (3, 3)
        """
        extent = sum(sizes)
        total = self.num_outputs(extent)
        ends = [self._centred_before(end, total) for _, end in spans(sizes)]
        # Windows centred in the padding belong to the last rank that holds inputs.
        last = max((r for r, size in enumerate(sizes) if size), default=0)
        ends[last:] = [total] * (len(ends) - last)
        return tuple(end - begin for begin, end in zip([0, *ends], ends, strict=False))

    def _centred_before(self, place: int, total: int) -> int:
        """Return how many of the outputs have their centre before an input."""
        # Centre of output j: j * stride - padding + reach // 2.
        first_at_or_after = -((self.reach // 2 - self.padding - place) // self.stride)
        return max(0, min(total, first_at_or_after)) if place > 0 else 0

    def needed(self, outputs: Span) -> Span:
        """Return the inputs that some outputs look at; may reach beyond the dim."""
        first, end = outputs
        if first == end:
            return (0, 0)
        start = first * self.stride - self.padding
        return (start, (end - 1) * self.stride - self.padding + self.reach + 1)

    def inside(self, outputs: Span, held: Span, extent: int) -> Span:
        """Return those of the outputs whose windows look at held inputs only."""
        first, end = outputs
        while first < end and not _within(
            self.needed((first, first + 1)), held, extent
        ):
            first += 1
        while first < end and not _within(self.needed((end - 1, end)), held, extent):
            end -= 1
        return (first, end)


def clipped(span: Span, extent: int) -> Span:
    """Return the part of a span inside a dim."""
    start = max(0, min(span[0], extent))
    return (start, max(start, min(span[1], extent)))


def _within(needed: Span, held: Span, extent: int) -> bool:
    start, stop = clipped(needed, extent)
    return held[0] <= start and stop <= held[1]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A transposed convolution along one dim: each input spreads over a window.

    Args:
        kernel, stride, padding, dilation: Of the convolution it transposes.
        output_padding: Outputs added at the end.
    """

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    output_padding: int = 0

    @property
    def reach(self) -> int:
        """Outputs from the first to the last that an input spreads to."""
        return self.dilation * (self.kernel - 1)

    def num_outputs(self, extent: int) -> int:
        """Return the outputs of a whole dim."""
        inner = (extent - 1) * self.stride - 2 * self.padding
        return inner + self.reach + self.output_padding + 1

    def output_sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return each rank's outputs: those around its inputs' centres.

        >>> Spread(kernel=2, stride=2).output_sizes((3, 2))
        (6, 4)
        """
        extent = sum(sizes)
        total = self.num_outputs(extent)
        shift = self.reach // 2 - self.padding
        ends = [
            max(0, min(total, end * self.stride + shift)) for _, end in spans(sizes)
        ]
        ends = [
            total if end == extent else (0 if end == 0 else place)
            for place, (_, end) in zip(ends, spans(sizes), strict=True)
        ]
        return tuple(end - begin for begin, end in zip([0, *ends], ends, strict=False))

    def needed(self, outputs: Span) -> Span:
        """Return inputs that reach some outputs, and from which to count them."""
        first, end = outputs
        if first == end:
            return (0, 0)
        reaching = -((self.reach - first - self.padding) // self.stride)
        start = min(reaching, (first + self.padding) // self.stride)
        return (start, (end - 1 + self.padding) // self.stride + 1)
