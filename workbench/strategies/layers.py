"""The parts of the nets: attention, norms and feed-forward of GPT and Llama.

Written so that autograd keeps exactly what the model's spec says it keeps.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

#: Attention of queries [B, H, T, K] to keys and values [B, G, T, K].
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def causal_attention(
    q_BHTK: torch.Tensor, k_BHTK: torch.Tensor, v_BHTK: torch.Tensor
) -> torch.Tensor:
    """Attend to this and earlier tokens; fewer key heads than query heads are shared."""
    grouped = q_BHTK.shape[1] != k_BHTK.shape[1]
    return functional.scaled_dot_product_attention(
        q_BHTK, k_BHTK, v_BHTK, is_causal=True, enable_gqa=grouped
    )


def split_heads(x_BTD: torch.Tensor, head_dim: int) -> torch.Tensor:
    """[B, T, H*K] -> [B, H, T, K]."""
    return x_BTD.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def join_heads(x_BHTK: torch.Tensor) -> torch.Tensor:
    """[B, H, T, K] -> [B, T, H*K]."""
    return x_BHTK.transpose(1, 2).flatten(2)


class Positions(nn.Embedding):
    """A learned vector for each position."""

    def forward(self, where: Any) -> torch.Tensor:
        """Return the vectors [T, D] of positions, given as a slice or as numbers."""
        return self.weight[where]


class GptAttention(nn.Module):
    """Causal attention with one matrix for queries, keys and values, and biases.

    The matrix' rows stand head by head: the queries that share a key head, its key, its
    value. So a contiguous cut of the rows is a cut by heads.
    """

    def __init__(
        self, hidden: int, query_width: int, kv_width: int, head_dim: int
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.attend: Attend = causal_attention
        self.sharing = query_width // kv_width
        self.qkv = nn.Linear(hidden, query_width + 2 * kv_width)
        self.proj = nn.Linear(query_width, hidden)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        heads = self.qkv(x_BTD).unflatten(-1, (-1, self.sharing + 2, self.head_dim))
        q, k, v = heads.split((self.sharing, 1, 1), dim=-2)
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))
        return self.proj(join_heads(self.attend(q, k, v)))


class GptMlp(nn.Module):
    """Up, GELU, down, with biases."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ffn)
        self.down = nn.Linear(ffn, hidden)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.down(functional.gelu(self.up(x_BTD)))


class LlamaAttention(nn.Module):
    """Causal attention with rotary positions and shared key heads, no biases."""

    def __init__(
        self,
        hidden: int,
        query_width: int,
        kv_width: int,
        head_dim: int,
        rope_theta: float,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.rope_theta = rope_theta
        self.attend: Attend = causal_attention
        #: Positions of the tokens that this rank holds, where a sequence is cut.
        self.where: torch.Tensor | None = None
        self.q = nn.Linear(hidden, query_width, bias=False)
        self.k = nn.Linear(hidden, kv_width, bias=False)
        self.v = nn.Linear(hidden, kv_width, bias=False)
        self.proj = nn.Linear(query_width, hidden, bias=False)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        q, k, v = (
            split_heads(part(x_BTD), self.head_dim) for part in (self.q, self.k, self.v)
        )
        where = self.where
        if where is None:
            where = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        cos_TK, sin_TK = rotary_angles(where, self.head_dim, self.rope_theta, x_BTD)
        attended = self.attend(rotate(q, cos_TK, sin_TK), rotate(k, cos_TK, sin_TK), v)
        return self.proj(join_heads(attended))


class LlamaMlp(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)), no biases."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.down(functional.silu(self.gate(x_BTD)) * self.up(x_BTD))


class Layer(nn.Module):
    """One pre-norm transformer layer: x + attn(norm1(x)), then x + mlp(norm2(x))."""

    def __init__(
        self, norm1: nn.Module, attn: nn.Module, norm2: nn.Module, mlp: nn.Module
    ) -> None:
        super().__init__()
        self.norm1 = norm1
        self.attn = attn
        self.norm2 = norm2
        self.mlp = mlp
        #: Whether the backward computes the layer again instead of keeping its insides.
        self.recompute = False

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        if self.recompute and torch.is_grad_enabled():
            y: torch.Tensor = checkpoint(self._run, x_BTD, use_reentrant=False)
            return y
        return self._run(x_BTD)

    def _run(self, x_BTD: torch.Tensor) -> torch.Tensor:
        x_BTD = x_BTD + self.attn(self.norm1(x_BTD))
        return x_BTD + self.mlp(self.norm2(x_BTD))


def rotary_angles(
    where_T: torch.Tensor, head_dim: int, theta: float, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines [T, K] of some positions, in Llama's pairing."""
    half = torch.arange(0, head_dim, 2, device=like.device, dtype=torch.float32)
    rates = theta ** (-half / head_dim)
    angles = torch.outer(where_T.float(), rates).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(
    x_BHTK: torch.Tensor, cos_TK: torch.Tensor, sin_TK: torch.Tensor
) -> torch.Tensor:
    """Turn each pair (i, i + K/2) by its position's angle."""
    left, right = x_BHTK.chunk(2, dim=-1)
    return x_BHTK * cos_TK + torch.cat((-right, left), dim=-1) * sin_TK
