"""Which part of a whole tensor each rank holds: one box of indices per rank."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Self

from workbench.errors import LayoutError

#: (first index, index after the last) in each dim; empty where they are equal.
Box = tuple[tuple[int, int], ...]


def balanced_sizes(extent: int, parts: int) -> tuple[int, ...]:
    """Return the sizes of `parts` pieces that differ by at most one, larger first.

    >>> balanced_sizes(10, 4)
    (3, 3, 2, 2)
    """
    if parts < 1:
        raise LayoutError(f"cannot cut an extent of {extent} into {parts} parts")
    return tuple(extent // parts + (part < extent % parts) for part in range(parts))


def spans(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return where consecutive pieces of these sizes begin and end.

    >>> spans((3, 0, 2))
    ((0, 3), (3, 3), (3, 5))
    """
    ends = tuple(accumulate(sizes))
    return tuple((end - size, end) for end, size in zip(ends, sizes, strict=True))


def box_shape(box: Box) -> tuple[int, ...]:
    """Return the extents of a box."""
    return tuple(stop - start for start, stop in box)


def intersection(one: Box, other: Box) -> Box | None:
    """Return the indices that two boxes share; None where they share none."""
    shared = tuple(
        (max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)
    )
    return shared if all(start < stop for start, stop in shared) else None


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One box per rank of a group. Boxes may overlap, be empty, or leave parts out.

    Args:
        boxes: By rank in the group, all with the same number of dims.

    Raises:
        LayoutError: Boxes of unequal dims, or one that ends before it begins.
    """

    boxes: tuple[Box, ...]

    def __post_init__(self) -> None:
        if len({len(box) for box in self.boxes}) != 1:
            raise LayoutError(
                f"boxes with {sorted({len(box) for box in self.boxes})} dims in one "
                "partition",
                hint="give every rank a box with the same number of dims",
            )
        for rank, box in enumerate(self.boxes):
            if any(stop < start for start, stop in box):
                raise LayoutError(
                    f"the box of rank {rank} ends before it begins: {box}"
                )

    @classmethod
    def cut(cls, shape: Sequence[int], dim: int, sizes: Sequence[int]) -> Self:
        """Cut one dim into consecutive pieces, one per rank; sizes may be 0.

        Raises:
            LayoutError: The sizes do not add up to the dim's extent.
        """
        if sum(sizes) != shape[dim]:
            raise LayoutError(
                f"sizes {tuple(sizes)} add up to {sum(sizes)}, dim {dim} has "
                f"{shape[dim]}",
                hint=f"e.g. {balanced_sizes(shape[dim], len(sizes))}",
            )
        whole = [(0, extent) for extent in shape]
        return cls(
            boxes=tuple(
                (*whole[:dim], span, *whole[dim % len(shape) + 1 :])
                for span in spans(sizes)
            )
        )

    @classmethod
    def grid(cls, shape: Sequence[int], degrees: Sequence[int]) -> Self:
        """Cut every dim into `degrees` balanced pieces; the last dim's rank runs first.

        >>> Partition.grid((4, 3), (2, 1)).boxes
        (((0, 2), (0, 3)), ((2, 4), (0, 3)))
        """
        per_dim = [
            spans(balanced_sizes(extent, degree))
            for extent, degree in zip(shape, degrees, strict=True)
        ]
        return cls(boxes=tuple(product(*per_dim)))

    @classmethod
    def at_root(cls, shape: Sequence[int], root: int, num_ranks: int) -> Self:
        """Everything on one rank, nothing on the others."""
        whole = tuple((0, extent) for extent in shape)
        empty = tuple((0, 0) for _ in shape)
        return cls(
            boxes=tuple(whole if rank == root else empty for rank in range(num_ranks))
        )

    @property
    def num_ranks(self) -> int:
        """Ranks of the group."""
        return len(self.boxes)

    def shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of one rank's part."""
        return box_shape(self.boxes[rank])

    def widened(self, dim: int, before: int, after: int, *, extent: int) -> "Partition":
        """Return this partition with halos along one dim, clipped to [0, extent).

        A rank that holds nothing gets no halo.
        """

        def widen(box: Box) -> Box:
            start, stop = box[dim]
            if start == stop:
                return box
            span = (max(0, start - before), min(extent, stop + after))
            return (*box[:dim], span, *box[dim % len(box) + 1 :])

        return Partition(boxes=tuple(widen(box) for box in self.boxes))


def sent_elements(source: Partition, target: Partition, rank: int) -> int:
    """Return how many elements a rank sends to others when source becomes target.

    Sum over the other ranks of what they want of this rank's box: the closed form that
    the counted bytes of `move` are compared with.

    >>> rows = Partition.cut((8, 4), 0, (4, 4))
    >>> sent_elements(rows, rows.widened(0, 1, 1, extent=8), 0)
    4
    """
    return sum(
        math.prod(box_shape(shared))
        for peer, wanted in enumerate(target.boxes)
        if peer != rank
        and (shared := intersection(source.boxes[rank], wanted)) is not None
    )
