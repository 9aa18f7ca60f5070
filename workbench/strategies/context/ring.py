"""Ring attention: keys and values travel around while each rank attends (2310.01889).

Messages per call with n ranks, E elements of this rank's keys and values together
(2 * B * G * t * K): n - 1 sends of E forward, n - 1 of the travelling keys and values
and n - 1 of their gradients backward (Liu et al. 2023). Blocks that a causal
mask hides are neither computed nor kept back: they only travel.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from workbench.errors import LayoutError
from workbench.strategies.context.block import Attended, Mask, block_slopes
from workbench.strategies.context.tokens import Span, TokenCut


def ring_attention(
    q_BHtK: torch.Tensor,
    k_BGtK: torch.Tensor,
    v_BGtK: torch.Tensor,
    *,
    cut: TokenCut,
    group: dist.ProcessGroup,
    causal: bool = True,
) -> torch.Tensor:
    """Return this rank's tokens' attention [B, H, t, K] to the whole sequence.

    Args:
        q_BHtK: Queries of this rank's tokens, in the order of `cut.positions`.
        k_BGtK: Their keys; G divides H.
        v_BGtK: Their values.
        cut: Which rank holds which tokens.
        group: The ranks of the axis.
        causal: Whether a token sees only itself and earlier ones.

    Raises:
        LayoutError: A cut for other ranks or other tokens than these.
    """
    check_tokens(q_BHtK, cut, group)
    kv_2BGtK = torch.stack((k_BGtK, v_BGtK))
    attended: torch.Tensor = _Ring.apply(q_BHtK, kv_2BGtK, cut, group, causal)
    return attended


def check_tokens(q: torch.Tensor, cut: TokenCut, group: dist.ProcessGroup) -> None:
    """Refuse tensors that do not hold this rank's tokens.

    Raises:
        LayoutError: With both numbers.
    """
    if cut.num_ranks != group.size():
        raise LayoutError(
            f"a cut over {cut.num_ranks} ranks in a group of {group.size()}"
        )
    if q.shape[2] != cut.size(group.rank()):
        raise LayoutError(
            f"rank {group.rank()} holds {cut.size(group.rank())} of {cut.num_tokens} "
            f"tokens, its queries have {q.shape[2]}"
        )


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BHtK: torch.Tensor,
        kv_2BGtK: torch.Tensor,
        cut: TokenCut,
        group: dist.ProcessGroup,
        causal: bool,  # noqa: FBT001 autograd functions take positions
    ) -> torch.Tensor:
        q_BGRtK = _grouped(q_BHtK, kv_2BGtK).to(_inner(q_BHtK))
        so_far = Attended.nothing(q_BGRtK)
        for owner, kv in _around(kv_2BGtK, cut, group):
            k, v = kv.to(q_BGRtK.dtype)
            for queries, keys, mask in _pairs(cut, group.rank(), owner, q_BHtK, causal):
                part = Attended(
                    output=so_far.output[..., queries, :],
                    log_sum=so_far.log_sum[..., queries],
                )
                part.see(
                    q_BGRtK[..., queries, :], k[..., keys, :], v[..., keys, :], mask
                )
        output_BHtK = so_far.output.flatten(1, 2).to(q_BHtK.dtype)
        ctx.save_for_backward(q_BHtK, kv_2BGtK, output_BHtK, so_far.log_sum)
        ctx.route = (cut, group, causal)
        return output_BHtK

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        q_BHtK, own_kv, output_BHtK, log_sum = ctx.saved_tensors
        cut, group, causal = ctx.route
        q, slope, output = (
            _grouped(x, own_kv).to(log_sum.dtype)
            for x in (q_BHtK, grads[0], output_BHtK)
        )
        q_slope = torch.zeros_like(q)
        travelling = _TravellingSlopes(own_kv, cut, group)
        for owner, kv in _around(own_kv, cut, group):
            k, v = kv.to(q.dtype)
            block = travelling.of(owner)
            for queries, keys, mask in _pairs(cut, group.rank(), owner, q_BHtK, causal):
                whole = Attended(
                    output=output[..., queries, :], log_sum=log_sum[..., queries]
                )
                slopes = block_slopes(
                    q[..., queries, :],
                    k[..., keys, :],
                    v[..., keys, :],
                    mask,
                    whole=whole,
                    slope=slope[..., queries, :],
                )
                q_slope[..., queries, :] += slopes.q
                block[0][..., keys, :] += slopes.k
                block[1][..., keys, :] += slopes.v
            travelling.send_on(owner)
        q_slope_BHtK = q_slope.flatten(1, 2).to(q_BHtK.dtype)
        return q_slope_BHtK, travelling.home(), None, None, None


def _inner(x: torch.Tensor) -> torch.dtype:
    """Return what sums over blocks are kept in: float32 at least, whatever travels."""
    return torch.promote_types(x.dtype, torch.float32)


def _grouped(x_BHtK: torch.Tensor, kv_2BGtK: torch.Tensor) -> torch.Tensor:
    """[B, H, t, K] -> [B, G, R, t, K]: queries beside the key head they share."""
    return x_BHtK.unflatten(1, (kv_2BGtK.shape[2], -1))


def _around(
    kv_2BGtK: torch.Tensor, cut: TokenCut, group: dist.ProcessGroup
) -> Iterator[tuple[int, torch.Tensor]]:
    """Give each rank's keys and values in turn, this rank's own first.

    The next block is on its way while the caller works on the one it got.
    """
    rank, size = group.rank(), group.size()
    held = kv_2BGtK.contiguous()
    for step in range(size):
        owner = (rank - step) % size
        if step == size - 1:
            yield owner, held
            return
        coming = _like(held, cut.size((owner - 1) % size))
        works = _pass_on(held, coming, group)
        yield owner, held
        for work in works:
            work.wait()
        held = coming


def _like(kv: torch.Tensor, num_tokens: int) -> torch.Tensor:
    return kv.new_empty((*kv.shape[:-2], num_tokens, kv.shape[-1]))


def _pass_on(
    out: torch.Tensor, into: torch.Tensor, group: dist.ProcessGroup
) -> list[dist.Work]:
    """Send to the next rank and receive from the one before; nothing where empty."""
    rank, size = group.rank(), group.size()
    calls = []
    if out.numel():
        calls.append(
            dist.P2POp(dist.isend, out, group=group, group_peer=(rank + 1) % size)
        )
    if into.numel():
        calls.append(
            dist.P2POp(dist.irecv, into, group=group, group_peer=(rank - 1) % size)
        )
    return dist.batch_isend_irecv(calls) if calls else []


def _pairs(
    cut: TokenCut,
    rank: int,
    owner: int,
    like: torch.Tensor,
    causal: bool,  # noqa: FBT001
) -> Iterator[tuple[slice, slice, Mask]]:
    """Give the pairs of query chunk and key chunk that see each other.

    Chunks do not overlap, so that one is wholly before the other or is the same.
    """
    for queries, query_slice in _placed(cut.chunks(rank)):
        for keys, key_slice in _placed(cut.chunks(owner)):
            if queries[0] == queries[1] or keys[0] == keys[1]:
                continue
            if not causal or keys[1] <= queries[0]:
                yield query_slice, key_slice, None
            elif keys == queries:
                size = keys[1] - keys[0]
                full = torch.ones(size, size, dtype=torch.bool, device=like.device)
                yield query_slice, key_slice, full.tril()


def _placed(chunks: tuple[Span, ...]) -> Iterator[tuple[Span, slice]]:
    """Give each chunk with its place among the tokens held."""
    place = 0
    for start, stop in chunks:
        yield (start, stop), slice(place, place + stop - start)
        place += stop - start


class _TravellingSlopes:
    """Gradients of keys and values: each block's travel one rank behind the block.

    The owner adds its own share at the end, which saves a message.
    """

    def __init__(
        self, kv: torch.Tensor, cut: TokenCut, group: dist.ProcessGroup
    ) -> None:
        self._own = torch.zeros_like(kv)
        self._kv, self._cut, self._group = kv, cut, group
        self._held = self._own
        self._works: list[dist.Work] = []
        self._coming: torch.Tensor | None = None

    def of(self, owner: int) -> torch.Tensor:
        """Return the buffer to add this block's gradients to."""
        rank, size = self._group.rank(), self._group.size()
        if owner == rank:
            return self._own
        if owner == (rank - 1) % size:
            # The first to see this block beside its owner.
            self._held = torch.zeros_like(_like(self._kv, self._cut.size(owner)))
        else:
            self._held = self._take()
        return self._held

    def send_on(self, owner: int) -> None:
        """Let a block's gradients go to the next rank."""
        if owner == self._group.rank():
            return
        before = (owner - 1) % self._group.size()
        self._coming = _like(self._kv, self._cut.size(before))
        self._works = _pass_on(self._held, self._coming, self._group)

    def _take(self) -> torch.Tensor:
        for work in self._works:
            work.wait()
        assert self._coming is not None, "a block follows the one before it"
        return self._coming

    def home(self) -> torch.Tensor:
        """Return this rank's own gradients, complete."""
        if self._group.size() == 1:
            return self._own
        return self._own + self._take()
