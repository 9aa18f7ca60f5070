"""Attention of some queries to some keys, in parts that merge to the whole.

Online softmax (1805.02867); the backward is flash attention's (2307.08691).
Queries stand grouped by the key head that they share: [B, G, R, t, K] beside keys and
values [B, G, t, K].
"""

from dataclasses import dataclass

import torch


@dataclass(slots=True, kw_only=True)
class Attended:
    """What queries have gathered so far.

    Args:
        output: Weighted mean of the values seen, [.., t, K].
        log_sum: Logarithm of the sum of their weights, [.., t]; minus infinity at first.
    """

    output: torch.Tensor
    log_sum: torch.Tensor

    @classmethod
    def nothing(cls, q: torch.Tensor) -> "Attended":
        """Start with nothing seen."""
        return cls(
            output=torch.zeros_like(q), log_sum=q.new_full(q.shape[:-1], -torch.inf)
        )

    def see(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: "Mask"
    ) -> None:
        """Add the part that these keys and values give, in place."""
        scores = scaled_scores(q, k, mask)
        log_sum = scores.logsumexp(-1)
        output = (scores - log_sum.unsqueeze(-1)).exp() @ v.unsqueeze(2)
        together = torch.logaddexp(self.log_sum, log_sum)
        self.output.mul_((self.log_sum - together).exp().unsqueeze(-1))
        self.output.add_(output * (log_sum - together).exp().unsqueeze(-1))
        self.log_sum.copy_(together)


#: True where a query may see a key, [t, t']; None where it may see all.
Mask = torch.Tensor | None


def scaled_scores(q: torch.Tensor, k: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Return query-key products over sqrt(K), minus infinity where masked."""
    scores = (q * q.shape[-1] ** -0.5) @ k.unsqueeze(2).transpose(-1, -2)
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


@dataclass(slots=True, kw_only=True)
class Slopes:
    """Gradients of one block."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def block_slopes(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask,
    *,
    whole: Attended,
    slope: torch.Tensor,
) -> Slopes:
    """Return what one block adds to the gradients.

    Args:
        q: Queries of the block.
        k: Keys of the block.
        v: Values of the block.
        mask: What the queries may see.
        whole: What the queries gathered over *all* blocks.
        slope: Gradient of `whole.output`.
    """
    scores = scaled_scores(q, k, mask)
    weights = (scores - whole.log_sum.unsqueeze(-1)).exp()
    share = (slope * whole.output).sum(-1, keepdim=True)
    score_slope = weights * (slope @ v.unsqueeze(2).transpose(-1, -2) - share)
    score_slope = score_slope * q.shape[-1] ** -0.5
    return Slopes(
        q=score_slope @ k.unsqueeze(2),
        k=(score_slope.transpose(-1, -2) @ q).sum(2),
        v=(weights.transpose(-1, -2) @ slope).sum(2),
    )
