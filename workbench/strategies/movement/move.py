"""One linear operator moves any partition into any other; its adjoint moves it back.

`y` on a rank is, at each index of its target box, the sum of `x` over the ranks whose
source box holds that index (zero where none does). Exchanging source and target gives
the adjoint. Scatter, gather, repartition and the exchange of halos are cases of it.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist

from workbench.errors import LayoutError
from workbench.strategies.movement.boxes import (
    Box,
    Partition,
    box_shape,
    intersection,
)

#: As one collective (axis' op "all_to_all"), or as messages between the ranks that
#: have something to say to each other (op "send").
Transport = Literal["all_to_all", "messages"]


def move(
    x: torch.Tensor,
    source: Partition,
    target: Partition,
    *,
    group: dist.ProcessGroup,
    transport: Transport = "all_to_all",
) -> torch.Tensor:
    """Return this rank's part under `target` of what the ranks hold under `source`.

    A rank sends `sent_elements(source, target, rank)` elements forward and, with source
    and target exchanged, backward.

    Args:
        x: This rank's part, of the shape of its source box.
        source: What each rank of the group holds.
        target: What each rank of the group shall get.
        group: The ranks.
        transport: How.

    Raises:
        LayoutError: A partition for another number of ranks, or `x` of another shape.
    """
    if not source.num_ranks == target.num_ranks == group.size():
        raise LayoutError(
            f"partitions for {source.num_ranks} and {target.num_ranks} ranks in a group "
            f"of {group.size()}"
        )
    held = source.shape(group.rank())
    if tuple(x.shape) != held:
        raise LayoutError(
            f"rank {group.rank()} brings shape {tuple(x.shape)}, its box holds {held}"
        )
    moved: torch.Tensor = _Move.apply(x, source, target, group, transport)
    return moved


class _Move(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        source: Partition,
        target: Partition,
        group: dist.ProcessGroup,
        transport: Transport,
    ) -> torch.Tensor:
        ctx.route = (source, target, group, transport)
        return transfer(x, source, target, group, transport)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        source, target, group, transport = ctx.route
        back = _Move.apply(grads[0], target, source, group, transport)
        return back, None, None, None, None


def transfer(
    x: torch.Tensor,
    source: Partition,
    target: Partition,
    group: dist.ProcessGroup,
    transport: Transport,
) -> torch.Tensor:
    """Move without autograd."""
    rank = group.rank()
    mine, wanted = source.boxes[rank], target.boxes[rank]
    outgoing = [intersection(mine, box) for box in target.boxes]
    incoming = [intersection(box, wanted) for box in source.boxes]
    pieces = [view(x, mine, box) for box in outgoing]
    if transport == "all_to_all":
        received = _all_to_all(pieces, incoming, x, group)
    else:
        received = Messages(pieces, incoming, x, group).wait()
    return add_pieces(x.new_zeros(box_shape(wanted)), wanted, incoming, received)


def view(x: torch.Tensor, held: Box, box: Box | None) -> torch.Tensor | None:
    """Return the part of `x` (which covers `held`) inside `box`; None for no box."""
    if box is None:
        return None
    return x[
        tuple(
            slice(start - origin, stop - origin)
            for (start, stop), (origin, _) in zip(box, held, strict=True)
        )
    ]


def add_pieces(
    y: torch.Tensor,
    held: Box,
    boxes: Sequence[Box | None],
    pieces: Sequence[torch.Tensor | None],
) -> torch.Tensor:
    """Add each piece to the part of `y` (which covers `held`) inside its box."""
    for box, piece in zip(boxes, pieces, strict=True):
        place = view(y, held, box)
        if place is not None and piece is not None:
            place += piece
    return y


def _elements(box: Box | None) -> int:
    return 0 if box is None else torch.Size(box_shape(box)).numel()


def _all_to_all(
    pieces: Sequence[torch.Tensor | None],
    incoming: Sequence[Box | None],
    like: torch.Tensor,
    group: dist.ProcessGroup,
) -> list[torch.Tensor | None]:
    """Exchange all pieces, this rank's own among them, as one collective."""
    sent = [like.new_empty(0) if p is None else p.reshape(-1) for p in pieces]
    counts = [_elements(box) for box in incoming]
    flat = like.new_empty(sum(counts))
    dist.all_to_all_single(
        flat, torch.cat(sent), counts, [part.numel() for part in sent], group=group
    )
    return [
        None if box is None else part.view(box_shape(box))
        for box, part in zip(incoming, flat.split(counts), strict=True)
    ]


class Messages:
    """Messages under way between the ranks that share something; own parts stay here.

    Issued at once, so that work can be done before `wait`.
    """

    def __init__(
        self,
        pieces: Sequence[torch.Tensor | None],
        incoming: Sequence[Box | None],
        like: torch.Tensor,
        group: dist.ProcessGroup,
    ) -> None:
        rank = group.rank()
        self._sent = [
            None if piece is None or peer == rank else piece.contiguous()
            for peer, piece in enumerate(pieces)
        ]
        self._received = [
            None if box is None else like.new_empty(box_shape(box)) for box in incoming
        ]
        self._received[rank] = pieces[rank]
        calls = [
            dist.P2POp(dist.isend, piece, group=group, group_peer=peer)
            for peer, piece in enumerate(self._sent)
            if piece is not None
        ] + [
            dist.P2POp(dist.irecv, piece, group=group, group_peer=peer)
            for peer, piece in enumerate(self._received)
            if piece is not None and peer != rank
        ]
        self._works = dist.batch_isend_irecv(calls) if calls else []

    def wait(self) -> list[torch.Tensor | None]:
        """Return what came, by peer, once all of it is here."""
        for work in self._works:
            work.wait()
        return self._received


def scatter(
    x: torch.Tensor,
    *,
    shape: Sequence[int],
    dim: int,
    sizes: Sequence[int],
    group: dist.ProcessGroup,
    root: int = 0,
) -> torch.Tensor:
    """Give each rank its piece of what the root holds; the adjoint gathers.

    The root sends all but its own piece.

    Args:
        x: The whole on the root; an empty tensor of as many dims elsewhere.
        shape: Of the whole.
        dim: The dim to cut.
        sizes: Each rank's extent in it, 0 allowed.
        group: The ranks.
        root: Who holds the whole, counted in the group.
    """
    at_root = Partition.at_root(shape, root, group.size())
    return move(x, at_root, Partition.cut(shape, dim, sizes), group=group)


def gather(
    x: torch.Tensor,
    *,
    shape: Sequence[int],
    dim: int,
    sizes: Sequence[int],
    group: dist.ProcessGroup,
    root: int = 0,
) -> torch.Tensor:
    """Bring the ranks' pieces together on the root; the adjoint scatters.

    Other ranks get an empty tensor. Arguments as in `scatter`; `x` is this rank's piece.
    """
    at_root = Partition.at_root(shape, root, group.size())
    return move(x, Partition.cut(shape, dim, sizes), at_root, group=group)


def repartition(
    x: torch.Tensor,
    source: Partition,
    target: Partition,
    *,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """Turn one partition into another in one all-to-all; the adjoint turns it back."""
    return move(x, source, target, group=group)


def halo_exchange(
    x: torch.Tensor,
    *,
    dim: int,
    sizes: Sequence[int],
    before: int,
    after: int,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """Widen this rank's piece by copies of its neighbours' edges.

    The outer borders of the whole get no halo, nor does a rank that holds nothing; a
    halo may reach over several ranks where pieces are smaller than it. The adjoint adds
    each halo onto the edge it was copied from. A rank with both neighbours sends
    `(before + after) * other extents` elements each way (Dryden 2019, S31, one dim).

    Args:
        x: This rank's piece.
        dim: The dim that is cut.
        sizes: Each rank's extent in it.
        before: Width of the halo at the lower end.
        after: Width at the upper end.
        group: The ranks along the axis.
    """
    shape = list(x.shape)
    shape[dim] = sum(sizes)
    source = Partition.cut(shape, dim, sizes)
    target = source.widened(dim, before, after, extent=shape[dim])
    return move(x, source, target, group=group, transport="messages")
