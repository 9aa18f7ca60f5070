"""Cross-entropy over a vocabulary that is split over ranks, without gathering it.

Traffic per token: three numbers forward (its largest logit; the sum of exponentials and
the target's logit together), none backward (planner's "vocabulary" row).
"""

from typing import Any

import torch
import torch.distributed as dist

from workbench.strategies import movement
from workbench.strategies.pieces import piece_sizes


def split_cross_entropy(
    logits_Nv: torch.Tensor,
    targets_N: torch.Tensor,
    *,
    vocab_size: int,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """Return the loss of each token, nats, a copy on every rank.

    Args:
        logits_Nv: This rank's share of the vocabulary, cut as `torch.chunk` cuts it.
        targets_N: Token numbers.
        vocab_size: Tokens of the whole vocabulary.
        group: The ranks that share it.
    """
    losses: torch.Tensor = _SplitCrossEntropy.apply(
        logits_Nv, targets_N, -(-vocab_size // group.size()), group
    )
    return losses


class _SplitCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits_Nv: torch.Tensor,
        targets_N: torch.Tensor,
        chunk: int,
        group: dist.ProcessGroup,
    ) -> torch.Tensor:
        largest_N = _largest(logits_Nv)
        dist.all_reduce(largest_N, dist.ReduceOp.MAX, group=group)
        shifted_Nv = logits_Nv - largest_N.unsqueeze(1)
        place_N = targets_N - group.rank() * chunk
        mine_N = (place_N >= 0) & (place_N < logits_Nv.shape[1])
        rows_N = torch.arange(len(targets_N), device=logits_Nv.device)[mine_N]
        sums_2N = logits_Nv.new_zeros((2, len(targets_N)))
        sums_2N[1, rows_N] = shifted_Nv[rows_N, place_N[mine_N]]
        exponentials_Nv = shifted_Nv.exp_()
        sums_2N[0] = exponentials_Nv.sum(1)
        dist.all_reduce(sums_2N, group=group)
        shares_Nv = exponentials_Nv.div_(sums_2N[0].unsqueeze(1))
        ctx.save_for_backward(shares_Nv, rows_N, place_N[mine_N])
        return sums_2N[0].log() - sums_2N[1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        shares_Nv, rows_N, places_N = ctx.saved_tensors
        slope_Nv = shares_Nv * grads[0].unsqueeze(1)
        slope_Nv[rows_N, places_N] -= grads[0][rows_N]
        return slope_Nv, None, None, None


def _largest(logits_Nv: torch.Tensor) -> torch.Tensor:
    """Largest logit of each token; minus infinity where this rank has no vocabulary."""
    if logits_Nv.shape[1] == 0:
        return logits_Nv.new_full(logits_Nv.shape[:1], -torch.inf)
    return logits_Nv.amax(1)


def whole_logits(
    logits: torch.Tensor, *, vocab_size: int, group: dist.ProcessGroup
) -> torch.Tensor:
    """Gather logits [.., v] to [.., V] on every rank, for people and for sampling."""
    sizes = piece_sizes(vocab_size, group.size())
    return movement.all_gather(logits, dim=-1, sizes=sizes, group=group)
