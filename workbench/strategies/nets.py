"""Nets built from the same ModelSpec that is planned.

`named_parameters()` of a net equals `ModelSpec.named_parameters()`: names, shapes and
order. Initial values depend on (seed, parameter name) alone, so that every layout of a
net starts from the same numbers.
"""

import hashlib
import math
from collections.abc import Callable

import torch
from torch import nn

from workbench.errors import ModelError
from workbench.model import ModelSpec
from workbench.strategies.layers import (
    GptAttention,
    GptMlp,
    Layer,
    LlamaAttention,
    LlamaMlp,
    Positions,
)

_STANDARD_DEVIATION = 0.02


class Embedding(nn.Module):
    """Token vectors, plus learned position vectors where the model has them."""

    def __init__(self, vocab_size: int, hidden: int, num_positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, hidden)
        self.positions = Positions(num_positions, hidden) if num_positions else None
        #: Positions of the tokens that this rank holds, where a sequence is cut.
        self.where: torch.Tensor | None = None

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """[B, T] token numbers -> [B, T, D]."""
        x_BTD = self.tokens(tokens_BT)
        if self.positions is None:
            return x_BTD
        where = slice(tokens_BT.shape[1]) if self.where is None else self.where
        return x_BTD + self.positions(where)


class Decoder(nn.Module):
    """A decoder-only language model.

    Args:
        embedding, layers, norm, head: Its blocks, named as in the spec.
        tied: Whether the head uses the token embedding's matrix.
    """

    def __init__(
        self,
        embedding: Embedding,
        layers: list[Layer],
        norm: nn.Module,
        head: nn.Linear,
        *,
        tied: bool,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.head = head
        self.tied = tied
        self.tie()

    def tie(self) -> None:
        """Let the head use the embedding's matrix, where the model says so."""
        if self.tied:
            self.head.weight = self.embedding.tokens.weight

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """[B, T] token numbers -> logits [B, T, V]."""
        x_BTD = self.embedding(tokens_BT)
        for layer in self.layers:
            x_BTD = layer(x_BTD)
        return self.head(self.norm(x_BTD))


def build(model: ModelSpec) -> Decoder:
    """Build the net of a spec on torch's current default device, values unset.

    Raises:
        ModelError: No net is known for this family.
    """
    makers = {"gpt": _gpt_layer, "llama": _llama_layer}
    if model.family not in makers:
        raise ModelError(
            f"no net is known for the family {model.family!r} of {model.name!r}",
            hint=f"families with a net: {', '.join(makers)}",
        )
    hidden, vocab_size = model.number("hidden"), model.number("vocab_size")
    learned = model.family == "gpt"
    return Decoder(
        Embedding(vocab_size, hidden, model.tokens_per_sample if learned else 0),
        [makers[model.family](model) for _ in range(model.number("num_layers"))],
        _norm(model),
        nn.Linear(hidden, vocab_size, bias=False),
        tied=bool(model.number("tied")),
    )


def _widths(model: ModelSpec) -> tuple[int, int, int, int]:
    """hidden, query width, key width, head width."""
    head_dim = model.number("head_dim")
    query_width = model.number("num_heads") * head_dim
    return (
        model.number("hidden"),
        query_width,
        model.number("num_kv_heads") * head_dim,
        head_dim,
    )


def _norm(model: ModelSpec) -> nn.Module:
    hidden = model.number("hidden")
    return nn.LayerNorm(hidden) if model.family == "gpt" else nn.RMSNorm(hidden, 1e-5)


def _gpt_layer(model: ModelSpec) -> Layer:
    mlp = GptMlp(model.number("hidden"), model.number("ffn"))
    return Layer(_norm(model), GptAttention(*_widths(model)), _norm(model), mlp)


def _llama_layer(model: ModelSpec) -> Layer:
    theta = float(dict(model.hyper)["rope_theta"])
    attn = LlamaAttention(*_widths(model), theta)
    mlp = LlamaMlp(model.number("hidden"), model.number("ffn"))
    return Layer(_norm(model), attn, _norm(model), mlp)


def materialize(
    net: Decoder,
    device: torch.device,
    *,
    seed: int,
    after_layer: Callable[[Layer], object] = lambda _: None,
) -> None:
    """Give a net built on the meta device its memory and its initial values.

    Args:
        net: As `build` made it on the meta device.
        device: Where its parameters shall live.
        seed: Of the initial values.
        after_layer: Called with each layer once it has its values, e.g. to shard it
            before the next one takes memory.
    """
    for index, layer in enumerate(net.layers):
        assert isinstance(layer, Layer)
        fill(layer, f"layers.{index}.", device, len(net.layers), seed)
        after_layer(layer)
    for name in ("embedding", "norm", "head"):
        fill(net.get_submodule(name), f"{name}.", device, len(net.layers), seed)
    net.tie()


def fill(
    module: nn.Module, prefix: str, device: torch.device, num_layers: int, seed: int
) -> None:
    """Give a part of a net its memory and initial values.

    Args:
        module: On the meta device.
        prefix: The part's name in the net, with a dot at its end.
        device: Where its parameters shall live.
        num_layers: Of the whole net.
        seed: Of the initial values.
    """
    module.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            whole = _initial(prefix + name, parameter.shape, num_layers, seed)
            parameter.copy_(whole)


def _initial(name: str, shape: torch.Size, num_layers: int, seed: int) -> torch.Tensor:
    """GPT-2's rule: normal 0.02, outputs of residual branches less by sqrt(2 layers)."""
    if name.endswith("bias"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.ones(shape)
    scale = _STANDARD_DEVIATION
    if name.endswith(("proj.weight", "down.weight")):
        scale /= math.sqrt(2 * num_layers)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randn(shape, generator=generator) * scale
