"""The mixture-of-experts layer, on one rank or spread over an axis.

Traffic of a rank per call, with A kept choices among its tokens of which R are for
experts of other ranks, and D elements a token (GShard, Lepikhin et al. 2020): dispatch and
combine are an all-to-all of A*D elements each, forward and backward alike; a rank sends
R*D at dispatch, and at combine what others had sent to it. One more all-to-all of E
counts of 8 bytes tells the ranks forward what will come.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.layout import Axis
from workbench.layout.layout import DATA_AXES
from workbench.strategies.experts.gate import Routing, balance_share, route
from workbench.strategies.movement import exchange_counts, exchange_rows
from workbench.strategies.pieces import distributed, local, piece_sizes


class Experts(nn.Module):
    """Feed-forward nets side by side: down(silu(gate(x)) * up(x)) each.

    Args:
        num_experts: How many.
        hidden: D.
        ffn: F, the width of each one's middle.
    """

    def __init__(self, num_experts: int, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(num_experts, ffn, hidden))
        self.up = nn.Parameter(torch.empty(num_experts, ffn, hidden))
        self.down = nn.Parameter(torch.empty(num_experts, hidden, ffn))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, rows_ND: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Apply expert e of this rank to the e-th `counts[e]` rows.

        Experts without rows take part too, as does a rank without experts: every
        parameter gets a gradient, and every rank a backward.
        """
        gate, up, down = local(self.gate), local(self.up), local(self.down)
        if not len(gate):
            return rows_ND + (gate.sum() + up.sum() + down.sum())
        parts = []
        for expert, x_nD in enumerate(rows_ND.split(counts)):
            middle_nF = functional.silu(x_nD @ gate[expert].t()) * (
                x_nD @ up[expert].t()
            )
            parts.append(middle_nF @ down[expert].t())
        return torch.cat(parts)


class MixtureOfExperts(nn.Module):
    """A feed-forward layer of which each token uses `top_k` experts.

    Args:
        hidden: D.
        ffn: F of one expert.
        num_experts: E.
        top_k: Experts of a token.
        capacity_factor: See `route`; None drops nothing.
        balance_weight: What the load-balance loss counts for in the objective; its
            gradient joins the backward by itself.
    """

    def __init__(
        self,
        *,
        hidden: int,
        ffn: int,
        num_experts: int,
        top_k: int,
        capacity_factor: float | None = None,
        balance_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, num_experts, bias=False)
        self.experts = Experts(num_experts, hidden, ffn)
        self.top_k = top_k
        self.capacity_factor = capacity_factor
        self.balance_weight = balance_weight
        self.balance = 0.0
        self._mesh: DeviceMesh | None = None

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The ranks that the experts are spread over; None before `spread`."""
        return None if self._mesh is None else self._mesh.get_group(str(Axis.EP))

    @property
    def _data_groups(self) -> list[dist.ProcessGroup]:
        """The ranks with other samples, along each axis."""
        if self._mesh is None:
            return []
        names = self._mesh.mesh_dim_names or ()
        return [self._mesh.get_group(axis) for axis in DATA_AXES if axis in names]

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        x_ND = x_BTD.flatten(0, -2)
        routing = route(
            self.router(x_ND),
            top_k=self.top_k,
            capacity_factor=self.capacity_factor,
        )
        y_ND = self._through_experts(x_ND, routing)
        if self.balance_weight:
            share = balance_share(routing, groups=self._data_groups)
            self.balance = share.item()
            y_ND = _Joined.apply(y_ND, share * self.balance_weight)
        return y_ND.view_as(x_BTD)

    def _through_experts(self, x_ND: torch.Tensor, routing: Routing) -> torch.Tensor:
        """Send each kept choice's token to its expert and sum what comes back."""
        places = routing.kept.reshape(-1).nonzero().squeeze(1)
        experts = routing.experts.reshape(-1)[places]
        order = experts.argsort(stable=True)
        places = places[order]
        tokens = places // self.top_k
        counts = torch.bincount(experts, minlength=self.router.out_features)
        y_AD = self._exchanged(x_ND[tokens], counts)
        weights_A = routing.weights.reshape(-1)[places]
        return torch.zeros_like(x_ND).index_add(
            0, tokens, y_AD * weights_A.unsqueeze(1)
        )

    def _exchanged(self, rows_AD: torch.Tensor, counts_E: torch.Tensor) -> torch.Tensor:
        """Apply the experts to rows that stand in the experts' order."""
        group = self.group
        if group is None:
            return self.experts(rows_AD, counts_E.tolist())
        sizes = piece_sizes(len(counts_E), group.size())
        largest = max(sizes)
        told = counts_E.new_zeros((group.size(), largest))
        for row, part in zip(told, counts_E.split(sizes), strict=True):
            row[: len(part)] = part
        coming = exchange_counts(told, group=group)
        sent, received = told.sum(1).tolist(), coming.sum(1).tolist()
        arrived = exchange_rows(rows_AD, sent=sent, received=received, group=group)
        order = _by_expert(coming)
        counts = coming.sum(0).tolist()[: sizes[group.rank()]]
        done = torch.empty_like(arrived).index_copy(
            0, order, self.experts(arrived[order], counts)
        )
        return exchange_rows(done, sent=received, received=sent, group=group)


def _by_expert(coming: torch.Tensor) -> torch.Tensor:
    """Return the order that brings rows sorted by (rank, expert) to (expert, rank)."""
    num_ranks, num_experts = coming.shape
    experts = torch.arange(num_experts, device=coming.device).repeat(num_ranks)
    return experts.repeat_interleave(coming.reshape(-1)).argsort(stable=True)


class _Joined(torch.autograd.Function):
    """Gives `y` as it is; a further loss joins the objective with weight 1."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.like = loss.new_ones(())
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], ctx.like


def spread(moe: MixtureOfExperts, mesh: DeviceMesh) -> None:
    """Let each rank of the mesh's axis "ep" keep its share of the experts.

    Sends nothing: all ranks must hold the same whole values. Experts need not divide by
    the ranks. The load-balance loss is taken over all ranks with other samples. Gradients
    of experts are to be summed over `dp` alone, all others over `dp` and `ep`.

    Args:
        moe: The layer, in place.
        mesh: Of the layout.

    Raises:
        LayoutError: No axis "ep", or fewer experts than its ranks.
    """
    names = mesh.mesh_dim_names or ()
    if Axis.EP not in names:
        raise LayoutError(
            f"experts are spread over ep, the mesh has {', '.join(names)}",
            hint="a layout with ep=2 or more",
        )
    along = mesh[str(Axis.EP)]
    num_experts = moe.router.out_features
    if num_experts < along.size():
        raise LayoutError(
            f"{num_experts} experts cannot be spread over ep {along.size()} ranks",
            hint=f"ep={num_experts} or fewer",
        )
    for name, parameter in list(moe.experts.named_parameters()):
        setattr(moe.experts, name, distributed(parameter, along, Shard(0)))
    moe._mesh = mesh
