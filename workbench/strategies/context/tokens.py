"""Which tokens of a sequence each rank holds."""

from dataclasses import dataclass
from typing import Literal

import torch

from workbench.errors import LayoutError
from workbench.strategies.movement.boxes import balanced_sizes, spans

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class TokenCut:
    """A sequence cut over the ranks of an axis.

    "contiguous" gives rank r the r-th piece. "zigzag" cuts twice as many pieces and
    gives rank r the r-th from the front and the r-th from the back: under a causal mask
    early tokens are cheap and late ones dear, so that every rank has the same work.

    Args:
        num_tokens: Tokens of the sequence; need not divide.
        num_ranks: Ranks of the axis.
        order: How pieces are dealt.

    Raises:
        LayoutError: No ranks, or fewer than no tokens.
    """

    num_tokens: int
    num_ranks: int
    order: Literal["contiguous", "zigzag"]

    def __post_init__(self) -> None:
        if self.num_ranks < 1 or self.num_tokens < 0:
            raise LayoutError(
                f"cannot cut {self.num_tokens} tokens over {self.num_ranks} ranks"
            )

    def chunks(self, rank: int) -> tuple[Span, ...]:
        """Return where a rank's chunks begin and end, in the order it holds them.

        >>> TokenCut(num_tokens=9, num_ranks=2, order="zigzag").chunks(0)
        ((0, 3), (7, 9))
        """
        if self.order == "contiguous":
            return (spans(balanced_sizes(self.num_tokens, self.num_ranks))[rank],)
        pieces = spans(balanced_sizes(self.num_tokens, 2 * self.num_ranks))
        return (pieces[rank], pieces[-1 - rank])

    def size(self, rank: int) -> int:
        """Return how many tokens a rank holds."""
        return sum(stop - start for start, stop in self.chunks(rank))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens by rank."""
        return tuple(self.size(rank) for rank in range(self.num_ranks))

    def positions(self, rank: int, device: torch.device | None = None) -> torch.Tensor:
        """Return the positions in the sequence of the tokens that a rank holds."""
        return torch.cat(
            [
                torch.arange(start, stop, device=device)
                for start, stop in self.chunks(rank)
            ]
        )

    def take(self, x: torch.Tensor, rank: int, *, dim: int) -> torch.Tensor:
        """Return a rank's tokens of a whole sequence."""
        pieces = [
            x.narrow(dim, start, stop - start) for start, stop in self.chunks(rank)
        ]
        return torch.cat(pieces, dim)
