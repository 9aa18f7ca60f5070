"""Turns a layout into a torch DeviceMesh whose groups we made, named by axis."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from workbench.collectives.wrapped import MESH_PREFIX
from workbench.layout import Axis, Layout

#: Axes and degrees, outermost first: what decides the groups.
MeshKey = tuple[tuple[str, int], ...]


def mesh_key(layout: Layout) -> MeshKey:
    """Return the axes with a degree above 1 and their degrees, outermost first.

    A layout of one rank has the single axis "dp" of degree 1.
    """
    found = tuple(
        (str(axis), layout.degree(axis))
        for axis in layout.order
        if layout.degree(axis) > 1
    )
    return found or ((str(Axis.DP), 1),)


def build_mesh(layout: Layout, rank: int, device_type: str) -> DeviceMesh:
    """Make the groups of every axis and the mesh over them.

    The groups are our own, never the default group: traffic over all ranks ("world")
    stays apart from an axis that happens to span them. All ranks must call this.
    """
    key = mesh_key(layout)
    groups = axis_groups(layout, rank)
    names = tuple(axis for axis, _ in key)
    if len(groups) == 1:
        return DeviceMesh.from_group(groups[0], device_type, mesh_dim_names=names)
    return DeviceMesh.from_group(
        groups, device_type, mesh=_grid(layout), mesh_dim_names=names
    )


def axis_groups(layout: Layout, rank: int) -> list[dist.ProcessGroup]:
    """Make the groups along every axis; return those of this rank, outermost first."""
    grid = _grid(layout)
    return [
        _axis_group(grid, dim, axis, rank)
        for dim, (axis, _) in enumerate(mesh_key(layout))
    ]


def _grid(layout: Layout) -> torch.Tensor:
    degrees = [degree for _, degree in mesh_key(layout)]
    return torch.arange(layout.num_ranks).reshape(degrees)


def _axis_group(
    grid: torch.Tensor, dim: int, axis: str, rank: int
) -> dist.ProcessGroup:
    """Make every group along one axis, and return the one this rank is in."""
    lines = grid.movedim(dim, -1).reshape(-1, grid.shape[dim]).tolist()
    mine: dist.ProcessGroup | None = None
    for line in lines:
        group = dist.new_group(line, group_desc=f"{MESH_PREFIX}{axis}")
        if rank in line:
            mine = group
    assert mine is not None, "every rank lies on one line of each axis"
    return mine
