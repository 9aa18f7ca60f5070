"""Parameters as DTensors of which each rank keeps its piece."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a parameter, differentiably."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def piece_span(extent: int, num_pieces: int, index: int) -> tuple[int, int]:
    """Return where a piece begins and ends, as `torch.chunk` cuts.

    >>> [piece_span(5, 4, index) for index in range(4)]
    [(0, 2), (2, 4), (4, 5), (5, 5)]
    """
    chunk = -(-extent // num_pieces)
    start = min(index * chunk, extent)
    return start, min(start + chunk, extent)


def piece_sizes(extent: int, num_pieces: int) -> tuple[int, ...]:
    """Return the sizes of all pieces."""
    spans = (piece_span(extent, num_pieces, index) for index in range(num_pieces))
    return tuple(stop - start for start, stop in spans)


def distributed(
    whole: nn.Parameter, mesh: DeviceMesh, placement: Placement
) -> nn.Parameter:
    """Keep this rank's piece of a parameter that all ranks hold alike; sends nothing.

    Args:
        whole: The parameter.
        mesh: An axis' own mesh, of one dim.
        placement: `Shard(dim)` or `Replicate()`.
    """
    value = whole.detach()
    if isinstance(placement, Shard):
        dim = placement.dim
        start, stop = piece_span(value.shape[dim], mesh.size(), mesh.get_local_rank())
        # A copy, lest the piece keep the whole alive.
        value = value.narrow(dim, start, stop - start).clone(
            memory_format=torch.contiguous_format
        )
    held = DTensor.from_local(
        value,
        mesh,
        [placement],
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )
    return nn.Parameter(held, requires_grad=whole.requires_grad)
