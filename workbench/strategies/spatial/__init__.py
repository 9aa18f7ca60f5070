"""Spatial parallelism: each sample's extents are cut over the axes sx, sy, sz (S18, S31).

A net of torch's own modules runs unchanged on a `SpatialTensor`: its convolutions,
poolings and norms exchange what they need with the neighbours, all else is local.
Weights are whole on every rank.

To use: `x = cut(x_BCXYZ, ranks.mesh)`, `loss = criterion(net(x), cut(y, mesh, first=1))`,
`loss.backward()`, then `average_gradients(net.parameters(), spatial_groups(mesh))`. The
loss is the same number on all spatial ranks, hence the average (see `movement`). With
`dp` or `fsdp` beside it, average over those ranks as ever.
"""

from workbench.strategies.spatial.dispatch import SpatialTensor
from workbench.strategies.spatial.grid import (
    average_gradients,
    cut,
    spatial_groups,
    whole,
)
from workbench.strategies.spatial.split import Cut
from workbench.strategies.spatial.windows import Window

__all__ = [
    "Cut",
    "SpatialTensor",
    "Window",
    "average_gradients",
    "cut",
    "spatial_groups",
    "whole",
]
