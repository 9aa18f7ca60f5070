"""Tensor parallelism: matrices cut over the ranks of an axis (Megatron-LM, 1909.08053).

Parameters are DTensors over the axis' mesh, so that checkpoints, FSDP2 and optimizers
know what a rank holds; the computation runs on local tensors with explicit edges, so
that each byte is one that stands in these files. Torch's `parallelize_module` moves the
same tensors, but converts at every operation and cannot cut fused attention matrices.

To split a net: `split(net, DECODER_RULES, mesh["tp"], sequence=layout.sp)`, then
`split_cross_entropy` on the local logits it returns, `sum_partial_gradients` after the
last backward of a step, and `whole_logits` where somebody wants to see them.
"""

from workbench.strategies.pieces import local
from workbench.strategies.tensor.edges import Edges
from workbench.strategies.tensor.loss import split_cross_entropy, whole_logits
from workbench.strategies.tensor.modules import (
    ColumnLinear,
    RowLinear,
    SplitEmbedding,
    WholeLayerNorm,
    WholeRMSNorm,
)
from workbench.strategies.tensor.product import row_product
from workbench.strategies.tensor.rules import (
    DECODER_RULES,
    Rule,
    partial_parameters,
    split,
    sum_partial_gradients,
)

__all__ = [
    "DECODER_RULES",
    "ColumnLinear",
    "Edges",
    "RowLinear",
    "Rule",
    "SplitEmbedding",
    "WholeLayerNorm",
    "WholeRMSNorm",
    "local",
    "partial_parameters",
    "row_product",
    "split",
    "split_cross_entropy",
    "sum_partial_gradients",
    "whole_logits",
]
