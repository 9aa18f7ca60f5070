"""Attention to keys and values gathered from all ranks (Llama 3's way, 2407.21783).

One all-gather of keys and values together forward, `2 * B * G * T * K` elements, and
one reduce-scatter of the same backward; uneven cuts are padded to the largest.
"""

import torch
import torch.distributed as dist
from torch.nn import functional

from workbench.strategies.context.ring import check_tokens
from workbench.strategies.context.tokens import TokenCut
from workbench.strategies.movement import all_gather


def gathered_attention(
    q_BHtK: torch.Tensor,
    k_BGtK: torch.Tensor,
    v_BGtK: torch.Tensor,
    *,
    cut: TokenCut,
    group: dist.ProcessGroup,
    causal: bool = True,
) -> torch.Tensor:
    """Return this rank's tokens' attention [B, H, t, K] to the whole sequence.

    Arguments as in `ring_attention`; any cut will do.

    Raises:
        LayoutError: A cut for other ranks or other tokens than these.
    """
    check_tokens(q_BHtK, cut, group)
    kv_2BGtK = torch.stack((k_BGtK, v_BGtK))
    k, v = all_gather(kv_2BGtK, dim=3, sizes=cut.sizes, group=group)
    return functional.scaled_dot_product_attention(
        q_BHtK,
        k,
        v,
        attn_mask=_mask(cut, group.rank(), q_BHtK.device) if causal else None,
        enable_gqa=q_BHtK.shape[1] != k_BGtK.shape[1],
    )


def _mask(cut: TokenCut, rank: int, device: torch.device) -> torch.Tensor:
    """Which of all tokens, in the order gathered, each of this rank's may see."""
    everyone = [cut.positions(peer, device) for peer in range(cut.num_ranks)]
    return cut.positions(rank, device).unsqueeze(1) >= torch.cat(everyone)
