"""Twins of torch's modules whose parameters are DTensors and whose maths is local.

A twin keeps its original's parameter names, so that state dicts do not change.
"""

from typing import Any, TypeVar

import torch
from torch import nn
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.strategies.layers import Positions
from workbench.strategies.pieces import distributed, local, piece_span
from workbench.strategies.tensor.edges import Edges, sum_copies

TwinType = TypeVar("TwinType", bound="Twin")


class Twin(nn.Module):
    """A module remade in place of another one, with the same parameters.

    `placements` say how each parameter lies over the axis; `partial` names those whose
    gradients cover this rank's tokens alone while tokens are split.
    """

    placements: dict[str, Placement]
    partial: tuple[str, ...] = ()
    edges: Edges

    @classmethod
    def of(cls: type[TwinType], original: nn.Module, edges: Edges) -> TwinType:
        """Make the twin; parameters are cut, all else is the original's.

        Raises:
            LayoutError: There is no such twin of this module.
        """
        base = cls.__mro__[2]
        if type(original) is not base:
            raise LayoutError(
                f"{cls.__name__} is made from {base.__name__}, this is a "
                f"{type(original).__name__}",
                hint="write a rule with another placement for it",
            )
        twin = cls.__new__(cls)
        twin.__dict__.update(original.__dict__)
        twin._parameters = dict(original._parameters)
        object.__setattr__(twin, "edges", edges)
        for name, parameter in original.named_parameters(recurse=False):
            placement = cls.placements.get(name, Replicate())
            twin._parameters[name] = distributed(parameter, edges.mesh, placement)
        return twin


class ColumnLinear(Twin, nn.Linear):
    """A share of the output features: [.., D] -> [.., f]."""

    placements = {"weight": Shard(0), "bias": Shard(0)}  # noqa: RUF012 read only

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[.., D] -> [.., f]; `x` has entered the region."""
        bias = None if self.bias is None else local(self.bias)
        return functional.linear(x, local(self.weight), bias)


class RowLinear(Twin, nn.Linear):
    """A share of the input features, summed on leaving: [.., f] -> [.., D]."""

    placements = {"weight": Shard(1)}  # noqa: RUF012 read only
    partial = ("bias",)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, f] -> [B, T, D], or [B, t, D] with sequence parallelism."""
        y = self.edges.leave(functional.linear(x, local(self.weight)))
        return y if self.bias is None else y + local(self.bias)


class SplitEmbedding(Twin, nn.Embedding):
    """A share of the vocabulary; tokens of other ranks look up a zero."""

    placements = {"weight": Shard(0)}  # noqa: RUF012 read only

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """[B, T] token numbers -> [B, T, D] on every rank: one all-reduce of it."""
        weight_vD = local(self.weight)
        group = self.edges.group
        first, end = piece_span(self.num_embeddings, group.size(), group.rank())
        mine = (tokens_BT >= first) & (tokens_BT < end)
        if weight_vD.shape[0] == 0:
            # Nothing to look up, yet the backward must reach the parameter.
            share = weight_vD.sum() * tokens_BT.new_zeros(
                (*tokens_BT.shape, self.embedding_dim), dtype=weight_vD.dtype
            )
        else:
            rows = functional.embedding((tokens_BT - first) * mine, weight_vD)
            share = rows * mine.unsqueeze(-1)
        return sum_copies(share, group)


class WholePositions(Twin, Positions):
    """A table of positions that all ranks hold whole."""

    placements = {}  # noqa: RUF012 read only

    def forward(self, where: Any) -> torch.Tensor:
        """Return the vectors [T, D] of positions, given as a slice or as numbers."""
        return local(self.weight)[where]


class WholeLayerNorm(Twin, nn.LayerNorm):
    """A norm over whole features, of all tokens or of this rank's."""

    placements = {}  # noqa: RUF012 read only
    partial = ("weight", "bias")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[.., D] -> [.., D]."""
        weight = None if self.weight is None else local(self.weight)
        bias = None if self.bias is None else local(self.bias)
        return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class WholeRMSNorm(Twin, nn.RMSNorm):
    """As `WholeLayerNorm`, for RMSNorm."""

    placements = {}  # noqa: RUF012 read only
    partial = ("weight",)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[.., D] -> [.., D]."""
        weight = None if self.weight is None else local(self.weight)
        return functional.rms_norm(x, self.normalized_shape, weight, self.eps)
