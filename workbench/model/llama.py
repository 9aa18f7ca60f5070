"""Llama style decoder: RMSNorm, rotary positions, SwiGLU, grouped queries, no biases.

What eager torch keeps per token and layer, in elements: input, normalised input and
output of both norms 6 D, rotated queries and keys, values and attention output, gate,
its SiLU, up and their product 4 F; in float32 one log-sum-exp per head and one statistic
per norm; and once per batch the rotary cosines and sines.
"""

from workbench.model.decoder import attention_core_flops, output_head, token_embedding
from workbench.model.shape import DecoderShape
from workbench.model.spec import Block, ModelSpec, Parameter, Saved


def llama(
    name: str, shape: DecoderShape, *, rope_theta: float, source: str
) -> ModelSpec:
    """Build the spec of a Llama style model."""
    return ModelSpec(
        name=name,
        family="llama",
        blocks=(
            token_embedding(shape, learned_positions=False),
            transformer_layers(shape),
            final_norm(shape),
            output_head(shape),
        ),
        tokens_per_sample=shape.tokens_per_sample,
        hyper=(*vars(shape).items(), ("rope_theta", rope_theta)),
        source=source,
    )


def transformer_layers(shape: DecoderShape) -> Block:
    """Return the repeated layer: `x + attn(norm1(x))`, then `x + mlp(norm2(x))`."""
    tokens = shape.tokens_per_sample
    matrices = shape.hidden * (
        2 * shape.query_width + 2 * shape.kv_width + 3 * shape.ffn
    )
    return Block(
        name="layers",
        kind="transformer",
        parameters=layer_parameters(shape),
        forward_flops=2 * tokens * matrices + attention_core_flops(shape),
        saved=layer_saved(shape),
        boundary_elements=tokens * shape.hidden,
        repeat=shape.num_layers,
        indexed=True,
    )


def layer_parameters(shape: DecoderShape) -> tuple[Parameter, ...]:
    """Return one layer's tensors, in the order the net declares them."""
    hidden, ffn = shape.hidden, shape.ffn
    return (
        Parameter(name="norm1.weight", shape=(hidden,), decay=False),
        Parameter(name="attn.q.weight", shape=(shape.query_width, hidden), tp_dim=0),
        Parameter(name="attn.k.weight", shape=(shape.kv_width, hidden), tp_dim=0),
        Parameter(name="attn.v.weight", shape=(shape.kv_width, hidden), tp_dim=0),
        Parameter(name="attn.proj.weight", shape=(hidden, shape.query_width), tp_dim=1),
        Parameter(name="norm2.weight", shape=(hidden,), decay=False),
        Parameter(name="mlp.gate.weight", shape=(ffn, hidden), tp_dim=0),
        Parameter(name="mlp.up.weight", shape=(ffn, hidden), tp_dim=0),
        Parameter(name="mlp.down.weight", shape=(hidden, ffn), tp_dim=1),
    )


def layer_saved(shape: DecoderShape) -> tuple[Saved, ...]:
    """Return what one layer keeps for the backward, per sample (see the module)."""
    tokens = shape.tokens_per_sample
    width, middle = tokens * shape.hidden, tokens * shape.ffn
    queries, keys = tokens * shape.query_width, tokens * shape.kv_width
    return (
        Saved(kind="norm1.input", num_elements=width, cut_by_sp=True),
        Saved(kind="norm1.normalised", num_elements=width, cut_by_sp=True),
        Saved(kind="norm1.output", num_elements=width, cut_by_sp=True),
        Saved(kind="norm1.statistics", num_elements=tokens, dtype="float32"),
        Saved(
            kind="attn.rotary",
            num_elements=2 * tokens * shape.head_dim,
            per_sample=False,
        ),
        Saved(kind="attn.q", num_elements=queries, cut_by_tp=True),
        Saved(kind="attn.k", num_elements=keys, cut_by_tp=True),
        Saved(kind="attn.v", num_elements=keys, cut_by_tp=True),
        Saved(kind="attn.output", num_elements=queries, cut_by_tp=True),
        Saved(
            kind="attn.log_sum_exp",
            num_elements=tokens * shape.num_heads,
            dtype="float32",
            cut_by_tp=True,
        ),
        Saved(kind="norm2.input", num_elements=width, cut_by_sp=True),
        Saved(kind="norm2.normalised", num_elements=width, cut_by_sp=True),
        Saved(kind="norm2.output", num_elements=width, cut_by_sp=True),
        Saved(kind="norm2.statistics", num_elements=tokens, dtype="float32"),
        Saved(kind="mlp.gate", num_elements=middle, cut_by_tp=True),
        Saved(kind="mlp.silu", num_elements=middle, cut_by_tp=True),
        Saved(kind="mlp.up", num_elements=middle, cut_by_tp=True),
        Saved(kind="mlp.product", num_elements=middle, cut_by_tp=True),
    )


def final_norm(shape: DecoderShape) -> Block:
    """Return the RMSNorm before the output matrix."""
    tokens = shape.tokens_per_sample
    width = tokens * shape.hidden
    return Block(
        name="norm",
        kind="norm",
        parameters=(Parameter(name="weight", shape=(shape.hidden,), decay=False),),
        forward_flops=0,
        saved=(
            Saved(kind="input", num_elements=width, cut_by_sp=True),
            Saved(kind="normalised", num_elements=width, cut_by_sp=True),
            Saved(kind="output", num_elements=width, cut_by_sp=True),
            Saved(kind="statistics", num_elements=tokens, dtype="float32"),
        ),
        boundary_elements=width,
    )
