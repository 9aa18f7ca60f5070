"""Blocks that GPT- and Llama-like decoders have in common: ends, attention FLOPs.

A net built from these blocks has `named_parameters()` equal to
`ModelSpec.named_parameters()`, in the same order.
"""

from workbench.model.shape import DecoderShape
from workbench.model.spec import Block, Parameter, Saved


def token_embedding(shape: DecoderShape, *, learned_positions: bool) -> Block:
    """Return the block that looks tokens (and positions) up: saves its indices alone."""
    parameters = [
        Parameter(
            name="tokens.weight", shape=(shape.vocab_size, shape.hidden), tp_dim=0
        )
    ]
    if learned_positions:
        positions = (shape.tokens_per_sample, shape.hidden)
        parameters.append(Parameter(name="positions.weight", shape=positions))
    return Block(
        name="embedding",
        kind="embedding",
        parameters=tuple(parameters),
        forward_flops=0,
        saved=(
            Saved(kind="tokens", num_elements=shape.tokens_per_sample, dtype="int64"),
        ),
        boundary_elements=shape.tokens_per_sample * shape.hidden,
    )


def output_head(shape: DecoderShape) -> Block:
    """Return the output matrix with the loss on its logits.

    Saved is what `cross_entropy` keeps, the log-probabilities in float32, and the
    targets; the input of the matrix is the final norm's output and belongs to the norm.
    """
    tokens, vocab = shape.tokens_per_sample, shape.vocab_size
    weight = Parameter(
        name="weight",
        shape=(vocab, shape.hidden),
        tp_dim=0,
        tied_to="embedding.tokens.weight" if shape.tied else None,
    )
    return Block(
        name="head",
        kind="head",
        parameters=(weight,),
        forward_flops=2 * tokens * shape.hidden * vocab,
        saved=(
            Saved(
                kind="log_probabilities",
                num_elements=tokens * vocab,
                dtype="float32",
                cut_by_tp=True,
            ),
            Saved(kind="targets", num_elements=tokens, dtype="int64"),
        ),
        boundary_elements=tokens * vocab,
    )


def attention_core_flops(shape: DecoderShape) -> int:
    """Return forward FLOPs of scores and weighted values of one layer, per sample.

    Full attention, not causal: 4 a k s per token (arXiv:2104.04473), so that MFU follows
    the usual convention.
    """
    return 4 * shape.query_width * shape.tokens_per_sample**2
