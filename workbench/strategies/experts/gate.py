"""Which experts a token goes to: top-k of a softmax, with a capacity per expert.

N tokens, E experts, k choices of a token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from workbench.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Where tokens go.

    Args:
        probabilities: The gate's softmax, [N, E].
        experts: The chosen experts, best first, [N, k].
        weights: Their probabilities, made to sum to 1 over a token's choices.
        kept: False where the expert was full.
    """

    probabilities: torch.Tensor
    experts: torch.Tensor
    weights: torch.Tensor
    kept: torch.Tensor


def route(
    logits_NE: torch.Tensor, *, top_k: int, capacity_factor: float | None
) -> Routing:
    """Choose experts for tokens.

    With a capacity factor f, an expert takes at most `ceil(f * k * N / E)` of *these*
    tokens (one rank's share of a batch, as in GShard, 2006.16668): first choices before
    second ones, earlier tokens before later ones. A token whose choices are all full
    gets nothing from this layer. Without one, nothing is dropped.

    Raises:
        ModelError: More choices than experts, or none.
    """
    num_tokens, num_experts = logits_NE.shape
    if not 1 <= top_k <= num_experts:
        raise ModelError(
            f"top_k {top_k} of {num_experts} experts",
            hint=f"between 1 and {num_experts}",
        )
    probabilities_NE = logits_NE.softmax(-1)
    chosen_Nk, experts_Nk = probabilities_NE.topk(top_k, dim=-1)
    kept_Nk = torch.ones_like(experts_Nk, dtype=torch.bool)
    if capacity_factor is not None:
        capacity = math.ceil(capacity_factor * top_k * num_tokens / num_experts)
        kept_Nk = _places(experts_Nk, num_experts) < capacity
    return Routing(
        probabilities=probabilities_NE,
        experts=experts_Nk,
        weights=chosen_Nk / chosen_Nk.sum(-1, keepdim=True),
        kept=kept_Nk,
    )


def _places(experts_Nk: torch.Tensor, num_experts: int) -> torch.Tensor:
    """Return each choice's place in its expert's queue."""
    # First choices of all tokens stand before second ones.
    queue = experts_Nk.t().reshape(-1)
    order = queue.argsort(stable=True)
    counts = torch.bincount(queue, minlength=num_experts)
    starts = counts.cumsum(0) - counts
    places = torch.empty_like(queue)
    places[order] = torch.arange(len(queue), device=queue.device) - starts[queue[order]]
    return places.view(experts_Nk.shape[1], -1).t()


def balance_share(
    routing: Routing, *, groups: Sequence[dist.ProcessGroup] = ()
) -> torch.Tensor:
    """Return this rank's share of the load-balance loss of the ranks' whole batch.

    The loss is `E * sum_e f_e * P_e`, with f_e the fraction of choices that went to
    expert e before any was dropped and P_e its mean probability (Switch Transformer,
    2101.03961, equation 4; 1 when balanced). The shares *sum* to it over the ranks: only
    E counts and the number of tokens are all-reduced, in 8 bytes each, and no gradient.

    Args:
        routing: Of this rank's tokens.
        groups: Along each axis whose ranks' tokens the loss is taken over.
    """
    num_tokens, num_experts = routing.probabilities.shape
    counts = torch.bincount(routing.experts.reshape(-1), minlength=num_experts)
    totals = torch.cat((counts, counts.new_tensor([num_tokens])))
    for group in groups:
        dist.all_reduce(totals, group=group)
    everyone = totals[-1]
    means_E = routing.probabilities.sum(0) / everyone
    choices = everyone * routing.experts.shape[1]
    return num_experts * (totals[:-1].to(means_E.dtype) * means_E).sum() / choices
