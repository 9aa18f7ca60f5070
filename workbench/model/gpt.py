"""GPT-2 style decoder: pre-norm, learned positions, GELU MLP, biases, full heads.

What eager torch keeps per token and layer, in elements (float32 run, fused causal
attention, no dropout): input and output of both LayerNorms 4 D, queries, keys and
values 3 D, attention output D, MLP before and after GELU 2 F; and in float32 one
log-sum-exp per head and two statistics per norm.
"""

from workbench.model.decoder import attention_core_flops, output_head, token_embedding
from workbench.model.shape import DecoderShape
from workbench.model.spec import Block, ModelSpec, Parameter, Saved


def gpt(name: str, shape: DecoderShape, *, source: str) -> ModelSpec:
    """Build the spec of a GPT-2 style model."""
    return ModelSpec(
        name=name,
        family="gpt",
        blocks=(
            token_embedding(shape, learned_positions=True),
            transformer_layers(shape),
            final_norm(shape),
            output_head(shape),
        ),
        tokens_per_sample=shape.tokens_per_sample,
        hyper=tuple(vars(shape).items()),
        source=source,
    )


def transformer_layers(shape: DecoderShape) -> Block:
    """Return the repeated layer: `x + attn(norm1(x))`, then `x + mlp(norm2(x))`."""
    tokens = shape.tokens_per_sample
    matrices = shape.hidden * (
        2 * shape.query_width + 2 * shape.kv_width + 2 * shape.ffn
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
    qkv = shape.query_width + 2 * shape.kv_width
    return (
        *_norm("norm1", hidden),
        Parameter(name="attn.qkv.weight", shape=(qkv, hidden), tp_dim=0),
        Parameter(name="attn.qkv.bias", shape=(qkv,), tp_dim=0, decay=False),
        Parameter(name="attn.proj.weight", shape=(hidden, shape.query_width), tp_dim=1),
        Parameter(name="attn.proj.bias", shape=(hidden,), decay=False),
        *_norm("norm2", hidden),
        Parameter(name="mlp.up.weight", shape=(ffn, hidden), tp_dim=0),
        Parameter(name="mlp.up.bias", shape=(ffn,), tp_dim=0, decay=False),
        Parameter(name="mlp.down.weight", shape=(hidden, ffn), tp_dim=1),
        Parameter(name="mlp.down.bias", shape=(hidden,), decay=False),
    )


def layer_saved(shape: DecoderShape) -> tuple[Saved, ...]:
    """Return what one layer keeps for the backward, per sample (see the module)."""
    tokens = shape.tokens_per_sample
    width, qkv = tokens * shape.hidden, shape.query_width + 2 * shape.kv_width
    return (
        Saved(kind="norm1.input", num_elements=width, cut_by_sp=True),
        Saved(kind="norm1.output", num_elements=width, cut_by_sp=True),
        Saved(kind="norm1.statistics", num_elements=2 * tokens, dtype="float32"),
        Saved(kind="attn.qkv", num_elements=tokens * qkv, cut_by_tp=True),
        Saved(
            kind="attn.output", num_elements=tokens * shape.query_width, cut_by_tp=True
        ),
        Saved(
            kind="attn.log_sum_exp",
            num_elements=tokens * shape.num_heads,
            dtype="float32",
            cut_by_tp=True,
        ),
        Saved(kind="norm2.input", num_elements=width, cut_by_sp=True),
        Saved(kind="norm2.output", num_elements=width, cut_by_sp=True),
        Saved(kind="norm2.statistics", num_elements=2 * tokens, dtype="float32"),
        Saved(kind="mlp.up", num_elements=tokens * shape.ffn, cut_by_tp=True),
        Saved(kind="mlp.gelu", num_elements=tokens * shape.ffn, cut_by_tp=True),
    )


def final_norm(shape: DecoderShape) -> Block:
    """Return the LayerNorm before the output matrix."""
    tokens = shape.tokens_per_sample
    width = tokens * shape.hidden
    return Block(
        name="norm",
        kind="norm",
        parameters=(
            Parameter(name="weight", shape=(shape.hidden,), decay=False),
            Parameter(name="bias", shape=(shape.hidden,), decay=False),
        ),
        forward_flops=0,
        saved=(
            Saved(kind="input", num_elements=width, cut_by_sp=True),
            Saved(kind="output", num_elements=width, cut_by_sp=True),
            Saved(kind="statistics", num_elements=2 * tokens, dtype="float32"),
        ),
        boundary_elements=width,
    )


def _norm(name: str, hidden: int) -> tuple[Parameter, Parameter]:
    return (
        Parameter(name=f"{name}.weight", shape=(hidden,), decay=False),
        Parameter(name=f"{name}.bias", shape=(hidden,), decay=False),
    )
