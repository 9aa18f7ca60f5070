"""A tensor of which this rank holds a box, and which dims are cut how."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from workbench.strategies import movement
from workbench.strategies.movement.boxes import spans

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How one dim is cut over one axis.

    Args:
        dim: The dim.
        axis: The axis' name in the mesh.
        sizes: Extents by rank along the axis; uneven and empty ones are allowed.
    """

    dim: int
    axis: str
    sizes: tuple[int, ...]

    @property
    def extent(self) -> int:
        """The whole dim's extent."""
        return sum(self.sizes)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where each rank's part begins and ends."""
        return spans(self.sizes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """This rank's box of a tensor.

    Args:
        local: What this rank holds.
        cuts: The dims that are cut, in the order in which halos are exchanged.
        mesh: Has every cut's axis.
        overlap: Whether convolutions compute their interior while halos travel.
    """

    local: torch.Tensor
    cuts: tuple[Cut, ...]
    mesh: DeviceMesh
    overlap: bool = True

    def group(self, cut: Cut) -> dist.ProcessGroup:
        """Return the ranks that share a dim, by name: it may be formed again."""
        return self.mesh.get_group(cut.axis)

    def span(self, cut: Cut) -> Span:
        """Return where this rank's part of a dim begins and ends."""
        return cut.spans[self.mesh.get_local_rank(cut.axis)]

    def cut_of(self, dim: int) -> Cut | None:
        """Return the cut of a dim; None where it is whole."""
        dim %= self.local.dim()
        return next((cut for cut in self.cuts if cut.dim == dim), None)

    @property
    def shape(self) -> torch.Size:
        """The whole tensor's shape."""
        extents = list(self.local.shape)
        for cut in self.cuts:
            extents[cut.dim] = cut.extent
        return torch.Size(extents)

    def holding(self, local: torch.Tensor, cuts: Sequence[Cut] | None = None) -> Self:
        """Return the same with another local part, and other cuts where given."""
        return replace(
            self, local=local, cuts=self.cuts if cuts is None else tuple(cuts)
        )

    def summed(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over all ranks that share this tensor; self-adjoint."""
        for cut in self.cuts:
            value = movement.all_sum_reduce(value, group=self.group(cut))
        return value
