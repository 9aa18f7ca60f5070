"""Mixture of experts: a Llama style decoder of whose feed-forwards each token uses a few.

What eager torch keeps per token and layer beside attention and norms: router
probabilities, and for each of the `top_k` chosen experts the token's copy, gate, its
SiLU, up and their product, and the expert's output. Loads are taken as even; where they
are not, the busiest rank needs more.
"""

from dataclasses import replace

from workbench.errors import ModelError
from workbench.model import llama as dense
from workbench.model.decoder import attention_core_flops, output_head, token_embedding
from workbench.model.shape import DecoderShape
from workbench.model.spec import Block, ModelSpec, Parameter, Saved


def mixture(
    name: str,
    shape: DecoderShape,
    *,
    num_experts: int,
    top_k: int,
    rope_theta: float,
    source: str,
) -> ModelSpec:
    """Build the spec of a mixture of experts; `shape.ffn` is one expert's middle.

    Raises:
        ModelError: More experts chosen than there are.
    """
    if not 1 <= top_k <= num_experts:
        raise ModelError(
            f"top_k {top_k} of {num_experts} experts",
            hint=f"try top_k={min(2, num_experts)}",
        )
    hyper = {**vars(shape), "num_experts": num_experts, "top_k": top_k}
    return ModelSpec(
        name=name,
        family="moe",
        blocks=(
            token_embedding(shape, learned_positions=False),
            expert_layers(shape, num_experts=num_experts, top_k=top_k),
            dense.final_norm(shape),
            output_head(shape),
        ),
        tokens_per_sample=shape.tokens_per_sample,
        hyper=(*hyper.items(), ("rope_theta", rope_theta)),
        source=source,
    )


def expert_layers(shape: DecoderShape, *, num_experts: int, top_k: int) -> Block:
    """Return the repeated layer; FLOPs count the chosen experts alone."""
    tokens, hidden = shape.tokens_per_sample, shape.hidden
    attention = hidden * (2 * shape.query_width + 2 * shape.kv_width)
    matrices = attention + hidden * num_experts + 3 * top_k * hidden * shape.ffn
    layer = dense.transformer_layers(shape)
    return replace(
        layer,
        parameters=(
            *(p for p in layer.parameters if not p.name.startswith("mlp.")),
            *_expert_parameters(shape, num_experts),
        ),
        forward_flops=2 * tokens * matrices + attention_core_flops(shape),
        saved=(
            *(s for s in layer.saved if not s.kind.startswith("mlp.")),
            *_expert_saved(shape, num_experts, top_k),
        ),
    )


def _expert_parameters(shape: DecoderShape, num_experts: int) -> tuple[Parameter, ...]:
    wide = (num_experts, shape.ffn, shape.hidden)
    back = (num_experts, shape.hidden, shape.ffn)
    return (
        Parameter(name="mlp.router.weight", shape=(num_experts, shape.hidden)),
        Parameter(name="mlp.experts.gate", shape=wide, tp_dim=1, ep_dim=0),
        Parameter(name="mlp.experts.up", shape=wide, tp_dim=1, ep_dim=0),
        Parameter(name="mlp.experts.down", shape=back, tp_dim=2, ep_dim=0),
    )


def _expert_saved(
    shape: DecoderShape, num_experts: int, top_k: int
) -> tuple[Saved, ...]:
    copies = shape.tokens_per_sample * top_k
    middle = copies * shape.ffn
    return (
        Saved(
            kind="mlp.probabilities",
            num_elements=shape.tokens_per_sample * num_experts,
            dtype="float32",
        ),
        Saved(kind="mlp.dispatched", num_elements=copies * shape.hidden),
        Saved(kind="mlp.gate", num_elements=middle, cut_by_tp=True),
        Saved(kind="mlp.silu", num_elements=middle, cut_by_tp=True),
        Saved(kind="mlp.up", num_elements=middle, cut_by_tp=True),
        Saved(kind="mlp.product", num_elements=middle, cut_by_tp=True),
        Saved(kind="mlp.combined", num_elements=copies * shape.hidden),
    )
