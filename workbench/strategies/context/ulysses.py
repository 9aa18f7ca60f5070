"""Ulysses attention: tokens are exchanged for heads and back (2309.14509).

Four all-to-alls a call forward (queries, keys, values, output) and four backward; each
sends what `sent_elements` says: with even cuts (n - 1)/n of `B * (2H + 2G) * t * K`
elements in all (Jacobs et al. 2023). Heads need not divide by the ranks; with
fewer key heads than ranks a key head goes to every rank whose queries share it.
"""

import torch
import torch.distributed as dist
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.strategies.context.ring import check_tokens
from workbench.strategies.context.tokens import TokenCut
from workbench.strategies.movement import Partition, balanced_sizes, repartition
from workbench.strategies.movement.boxes import Box, spans

_HEADS, _TOKENS = 1, 2


def ulysses_attention(
    q_BHtK: torch.Tensor,
    k_BGtK: torch.Tensor,
    v_BGtK: torch.Tensor,
    *,
    cut: TokenCut,
    group: dist.ProcessGroup,
    causal: bool = True,
) -> torch.Tensor:
    """Return this rank's tokens' attention [B, H, t, K] to the whole sequence.

    Arguments as in `ring_attention`; the cut must be contiguous.

    Raises:
        LayoutError: A cut for other ranks or tokens, or one that is not contiguous.
    """
    check_tokens(q_BHtK, cut, group)
    if cut.order != "contiguous":
        raise LayoutError(
            f"Ulysses gives each rank all tokens of some heads; the cut is {cut.order}",
            hint='TokenCut(order="contiguous", ...)',
        )
    queries = HeadCut.of(q_BHtK, k_BGtK, cut)
    q = repartition(q_BHtK, queries.by_tokens, queries.by_heads, group=group)
    k, v = (
        repartition(x, queries.keys_by_tokens, queries.keys_by_heads, group=group)
        for x in (k_BGtK, v_BGtK)
    )
    shared = queries.key_of_query(group.rank(), q.device)
    y = functional.scaled_dot_product_attention(
        q, k[:, shared], v[:, shared], is_causal=causal
    )
    return repartition(y, queries.by_heads, queries.by_tokens, group=group)


class HeadCut:
    """How queries and keys lie before and after the exchange.

    Args:
        query_shape: [B, H, T, K] of the whole.
        key_shape: [B, G, T, K] of the whole.
        cut: Of the tokens.
    """

    def __init__(
        self, query_shape: tuple[int, ...], key_shape: tuple[int, ...], cut: TokenCut
    ) -> None:
        self._heads = spans(balanced_sizes(query_shape[_HEADS], cut.num_ranks))
        self._sharing = query_shape[_HEADS] // key_shape[_HEADS]
        self.by_tokens = Partition.cut(query_shape, _TOKENS, cut.sizes)
        self.keys_by_tokens = Partition.cut(key_shape, _TOKENS, cut.sizes)
        self.by_heads = Partition(
            boxes=tuple(_with_heads(query_shape, span) for span in self._heads)
        )
        self.keys_by_heads = Partition(
            boxes=tuple(
                _with_heads(key_shape, self._keys(span)) for span in self._heads
            )
        )

    @classmethod
    def of(cls, q: torch.Tensor, k: torch.Tensor, cut: TokenCut) -> "HeadCut":
        """Read the shapes of the whole off one rank's part."""
        whole = [(*x.shape[:_TOKENS], cut.num_tokens, x.shape[3]) for x in (q, k)]
        return cls(whole[0], whole[1], cut)

    def _keys(self, queries: tuple[int, int]) -> tuple[int, int]:
        """Return the key heads that some query heads share."""
        start, stop = queries
        if start == stop:
            return (0, 0)
        return (start // self._sharing, -(-stop // self._sharing))

    def key_of_query(self, rank: int, device: torch.device) -> torch.Tensor:
        """Return for each of a rank's query heads the place of its key head."""
        start, stop = self._heads[rank]
        queries = torch.arange(start, stop, device=device)
        return queries // self._sharing - start // self._sharing


def _with_heads(shape: tuple[int, ...], heads: tuple[int, int]) -> Box:
    return tuple(
        heads if dim == _HEADS else (0, extent) for dim, extent in enumerate(shape)
    )
