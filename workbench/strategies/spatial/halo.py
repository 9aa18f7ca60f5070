"""Bringing the inputs that a rank's outputs need, at once or while it computes."""

from typing import Any

import torch
import torch.distributed as dist

from workbench.errors import LayoutError
from workbench.strategies import movement
from workbench.strategies.movement.boxes import Box, Partition, intersection
from workbench.strategies.movement.move import Messages, add_pieces, view
from workbench.strategies.spatial.split import Cut, Span, Split


def along(shape: torch.Size, dim: int, places: tuple[Span, ...]) -> Partition:
    """Return the partition in which ranks differ in one dim only."""
    boxes: list[Box] = []
    for place in places:
        box = [(0, extent) for extent in shape]
        box[dim] = place
        boxes.append(tuple(box))
    return Partition(boxes=tuple(boxes))


def bring(
    x: torch.Tensor, split: Split, cut: Cut, needed: tuple[Span, ...]
) -> torch.Tensor:
    """Return the inputs in `needed[rank]` along one dim; the adjoint adds them back.

    The ranks along the axis send each other what the other needs of theirs, one message
    per pair (op "send"). Nothing is sent where every rank holds what it needs.

    Args:
        x: What this rank holds: `cut.spans[rank]` in the cut's dim.
        split: Gives the group.
        cut: The dim.
        needed: By rank along the axis, inside the dim.
    """
    return movement.move(
        x,
        along(x.shape, cut.dim, cut.spans),
        along(x.shape, cut.dim, needed),
        group=split.group(cut),
        transport="messages",
    )


def recut(x: Split, cuts: tuple[Cut, ...]) -> Split:
    """Move borders: the same tensor cut as another one of the same shape is.

    What changes hands travels once, as messages; nothing does where cuts agree.

    Raises:
        LayoutError: Other dims or axes are cut, or extents differ.
    """
    ours, theirs = (
        [(cut.dim, cut.axis, cut.extent) for cut in given] for given in (x.cuts, cuts)
    )
    if ours != theirs:
        raise LayoutError(
            f"tensors whose (dim, axis, extent) are {ours} and {theirs} do not fit",
            hint="cut both with the same axes",
        )
    for index, (cut, wanted) in enumerate(zip(x.cuts, cuts, strict=True)):
        if cut.sizes != wanted.sizes:
            moved = bring(x.local, x, cut, wanted.spans)
            x = x.holding(moved, (*cuts[: index + 1], *x.cuts[index + 1 :]))
    return x


class Overlapped:
    """The halos of one dim, on their way while the caller computes.

    `start` gives `x` as it is, `finish` the halos below and above it. In the backward
    the halos' gradients travel, likewise, while that of the interior is computed.
    """

    def __init__(
        self, split: Split, cut: Cut, needed: tuple[Span, ...], shape: torch.Size
    ) -> None:
        self._group: dist.ProcessGroup = split.group(cut)
        self._source = along(shape, cut.dim, cut.spans)
        self._below = along(shape, cut.dim, _halos(needed, cut.spans, below=True))
        self._above = along(shape, cut.dim, _halos(needed, cut.spans, below=False))
        self._running: Messages | None = None
        self.rank = self._group.rank()

    def start(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Send the neighbours' halos off; returns `x` and a token for `finish`."""
        started: tuple[torch.Tensor, torch.Tensor] = _Start.apply(x, self)
        return started

    def finish(self, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's halos below and above."""
        halos: tuple[torch.Tensor, torch.Tensor] = _Finish.apply(token, self)
        return halos

    def send_halos(self, x: torch.Tensor) -> None:
        """Issue the messages of the forward."""
        mine = self._source.boxes[self.rank]
        pieces, boxes = [], []
        for peer in range(self._group.size()):
            shared = [
                intersection(mine, side.boxes[peer])
                for side in (self._below, self._above)
            ]
            theirs = [
                intersection(self._source.boxes[peer], side.boxes[self.rank])
                for side in (self._below, self._above)
            ]
            pieces.append(_one(view(x, mine, box) for box in shared))
            boxes.append(_one(theirs))
        self._boxes = boxes
        self._running = Messages(pieces, boxes, x, self._group)

    def receive_halos(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Wait for the messages of the forward."""
        assert self._running is not None, "finish follows start"
        received = self._running.wait()
        self._running = None
        sides = []
        for side in (self._below, self._above):
            held = side.boxes[self.rank]
            inside = [
                box if box is not None and intersection(box, held) else None
                for box in self._boxes
            ]
            sides.append(
                add_pieces(
                    like.new_zeros(side.shape(self.rank)), held, inside, received
                )
            )
        return sides[0], sides[1]

    def send_slopes(self, below: torch.Tensor, above: torch.Tensor) -> None:
        """Issue the messages of the backward."""
        pieces, boxes = [], []
        mine = self._source.boxes[self.rank]
        for peer in range(self._group.size()):
            source = self._source.boxes[peer]
            pieces.append(
                _one(
                    view(slope, side.boxes[self.rank], shared)
                    for slope, side in ((below, self._below), (above, self._above))
                    if (shared := intersection(source, side.boxes[self.rank]))
                )
            )
            boxes.append(
                _one(
                    intersection(mine, side.boxes[peer])
                    for side in (self._below, self._above)
                )
            )
        self._boxes = boxes
        self._running = Messages(pieces, boxes, below, self._group)

    def receive_slopes(self, slope: torch.Tensor) -> torch.Tensor:
        """Add what the neighbours' halos ask of this rank's edges."""
        assert self._running is not None, "the halos' backward came first"
        received = self._running.wait()
        self._running = None
        return add_pieces(
            slope.clone(), self._source.boxes[self.rank], self._boxes, received
        )


def _halos(
    needed: tuple[Span, ...], held: tuple[Span, ...], *, below: bool
) -> tuple[Span, ...]:
    """Return by rank what it needs below, or above, what it holds."""
    places = []
    for (start, stop), (first, end) in zip(needed, held, strict=True):
        if below:
            places.append(
                (min(start, first), first) if start < stop else (first, first)
            )
        else:
            places.append((end, max(stop, end)) if start < stop else (end, end))
    return tuple(places)


def _one(found: Any) -> Any:
    """Return the one thing that is not None; a peer lies on one side only."""
    present = [thing for thing in found if thing is not None]
    assert len(present) <= 1, "a peer's inputs are below or above, not both"
    return present[0] if present else None


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, halos: Overlapped
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.halos = halos
        halos.send_halos(x)
        return x.view_as(x), x.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return ctx.halos.receive_slopes(grads[0]), None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, token: torch.Tensor, halos: Overlapped
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.halos = halos
        return halos.receive_halos(token)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.halos.send_slopes(*grads)
        return grads[0].new_empty(0), None
