"""FLOP formulas that torch's counter lacks on CPU."""

import math
from typing import Any

import torch

#: (B, H, T, K) of a query, key or value.
Shape = tuple[int, ...]


def attention_flops(query_shape: Shape, key_shape: Shape, value_shape: Shape) -> int:
    """Forward FLOPs of attention, full (not causal), as the literature counts them.

    Two products per head: queries with keys, probabilities with values.

    >>> attention_flops((1, 2, 8, 4), (1, 2, 8, 4), (1, 2, 8, 4))
    2048
    """
    *batch_heads, query_len, width = query_shape
    key_len, value_width = key_shape[-2], value_shape[-1]
    return 2 * math.prod(batch_heads) * query_len * key_len * (width + value_width)


def _attention_forward(
    query_shape: Shape, key_shape: Shape, value_shape: Shape, *_: Any, **__: Any
) -> int:
    return attention_flops(query_shape, key_shape, value_shape)


def missing_formulas() -> dict[Any, Any]:
    """Return formulas to hand to `FlopCounterMode(custom_mapping=...)`.

    torch 2.13 counts the CPU's fused attention as zero FLOPs.
    """
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return {fused: _attention_forward}
