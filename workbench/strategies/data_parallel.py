"""Every rank holds the whole net; gradients are summed in flat buckets.

One bucket per transformer layer and one for everything else. A bucket is sent as soon
as the backward has filled it, while the backward goes on with the layers before it.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from workbench.strategies.nets import Decoder, materialize
from workbench.strategies.pieces import local
from workbench.strategies.units import units
from workbench.strategies.whole import WholeNet


class Bucket:
    """One flat buffer in which the gradients of a unit lie, and its reduction.

    Args:
        parameters: The unit's parameters; their gradients become views of the buffer.
        mesh: The layout's mesh.
        axes: The axes to sum over, one after the other.
        num_microbatches: Backwards of one step; the last one's gradients send it.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        mesh: DeviceMesh,
        axes: tuple[str, ...],
        num_microbatches: int,
    ) -> None:
        self.parameters = parameters
        self.mesh = mesh
        self.axes = axes
        # Every micro-batch's backward adds to every gradient once.
        self._additions = len(parameters) * num_microbatches
        self._missing = self._additions
        first = parameters[0]
        sizes = [local(parameter).numel() for parameter in parameters]
        self.flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self._work: dist.Work | None = None
        for parameter, view in zip(parameters, self.flat.split(sizes), strict=True):
            parameter.grad = _gradient(parameter, view)
            parameter.register_post_accumulate_grad_hook(self._filled)

    def _filled(self, _: torch.Tensor) -> None:
        """Count a gradient that is complete; send the bucket after the last one."""
        self._missing -= 1
        if self._missing == 0:
            group = self.mesh.get_group(self.axes[0])
            self._work = dist.all_reduce(self.flat, group=group, async_op=True)

    def finish(self) -> None:
        """Wait until the buffer holds the sum over all ranks."""
        if self._work is not None:
            self._work.wait()
            self._work = None
            for axis in self.axes[1:]:
                dist.all_reduce(self.flat, group=self.mesh.get_group(axis))

    def empty(self) -> None:
        """Make ready for the next backward, also after one that was broken off."""
        self._work = None
        self._missing = self._additions
        self.flat.zero_()


def _gradient(parameter: nn.Parameter, view: torch.Tensor) -> torch.Tensor:
    """Return a part of a bucket in the form of a parameter's gradient."""
    part = view.view_as(local(parameter))
    if not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


class DataParallel(WholeNet):
    """Replicas that differ in nothing but their samples."""

    @property
    def gradient_copies(self) -> int:
        """Every rank holds every summed gradient."""
        return self.ranks.world_size

    def wrap(self, net: Decoder) -> nn.Module:
        """Give the net its values, equal on all ranks, and its gradients buckets."""
        materialize(net, self.ranks.device, seed=self.settings.seed)
        self.buckets = [
            Bucket(unit, self.ranks.mesh, ("dp",), self.num_microbatches)
            for unit in units(net)
        ]
        return net

    def finish_gradients(self) -> None:
        """Wait for every bucket."""
        for bucket in self.buckets:
            bucket.finish()

    def zero_gradients(self) -> None:
        """Empty the buckets; gradients stay views of them."""
        for bucket in self.buckets:
            bucket.empty()
