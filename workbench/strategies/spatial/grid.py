"""Cutting whole tensors over the spatial axes, and making them whole again."""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from workbench.errors import LayoutError
from workbench.layout import Axis
from workbench.strategies import movement
from workbench.strategies.movement.boxes import balanced_sizes
from workbench.strategies.pieces import local
from workbench.strategies.spatial.dispatch import SpatialTensor
from workbench.strategies.spatial.split import Cut

#: In the order of the dims they cut.
SPATIAL_AXES = (Axis.SX, Axis.SY, Axis.SZ)


def cut(
    x: torch.Tensor,
    mesh: DeviceMesh,
    *,
    first: int = 2,
    sizes: dict[Axis, Sequence[int]] | None = None,
    overlap: bool = True,
) -> SpatialTensor:
    """Keep this rank's box of a tensor that all ranks hold whole; sends nothing.

    Args:
        x: E.g. [B, C, X, Y, Z].
        mesh: Its axes sx, sy, sz cut the dims `first`, `first + 1`, `first + 2`.
        first: 2 for features, 1 for targets without channels.
        sizes: Extents by rank of an axis; balanced where left out.
        overlap: Whether convolutions compute their interior while halos travel.

    Raises:
        LayoutError: A spatial axis without a dim, or sizes that do not add up.
    """
    cuts = []
    for offset, axis in enumerate(SPATIAL_AXES):
        if axis not in (mesh.mesh_dim_names or ()):
            continue
        if first + offset >= x.dim():
            raise LayoutError(
                f"the axis {axis} cuts dim {first + offset}, the tensor has {x.dim()}",
                hint=f"leave {axis} at 1",
            )
        degree = mesh.get_group(axis).size()
        given = (sizes or {}).get(axis)
        extent = x.shape[first + offset]
        parts = balanced_sizes(extent, degree) if given is None else tuple(given)
        if len(parts) != degree or sum(parts) != extent:
            raise LayoutError(
                f"sizes {parts} for an extent of {extent} over {axis} {degree} ranks",
                hint=f"e.g. {balanced_sizes(extent, degree)}",
            )
        cuts.append(Cut(dim=first + offset, axis=str(axis), sizes=parts))
    split = SpatialTensor(local=x, cuts=tuple(cuts), mesh=mesh, overlap=overlap)
    for part in cuts:
        start, stop = split.span(part)
        x = x.narrow(part.dim, start, stop - start)
    return split.holding(x.contiguous())


def whole(x: SpatialTensor) -> torch.Tensor:
    """Gather all boxes on every rank; the adjoint sums and scatters."""
    y = x.local
    for part in x.cuts:
        y = movement.all_gather(y, dim=part.dim, sizes=part.sizes, group=x.group(part))
    return y


def spatial_groups(mesh: DeviceMesh) -> tuple[dist.ProcessGroup, ...]:
    """Return this rank's groups along the spatial axes of a mesh."""
    names = mesh.mesh_dim_names or ()
    return tuple(mesh.get_group(axis) for axis in SPATIAL_AXES if axis in names)


def average_gradients(
    parameters: Iterable[torch.nn.Parameter], groups: Sequence[dist.ProcessGroup]
) -> None:
    """Average gradients over the ranks of some groups, one flat all-reduce per group.

    Payload: the bytes of all gradients that this rank holds, per group.
    """
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if not gradients or not groups:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    for group in groups:
        dist.all_reduce(flat, group=group)
        flat /= group.size()
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
