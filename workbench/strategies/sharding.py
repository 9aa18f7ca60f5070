"""Cuts stages with FSDP2, and sums shards over the axes that hold copies of them.

Each layer is gathered for its forward and again for its backward. The root, all else of
a stage, stays whole between them. Gradients are summed in place as whole tensors until
the last micro-batch, whose backward scatters them.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from workbench.layout import Layout
from workbench.strategies.pieces import local
from workbench.strategies.pipeline import Stage


class Shards:
    """FSDP2 over the axis fsdp, with replicas over dp where there are any.

    Args:
        mesh: The layout's mesh.
        layout: Degrees and precision.
    """

    def __init__(self, mesh: DeviceMesh, layout: Layout) -> None:
        self._whole_mesh = mesh
        self._mesh = mesh["dp", "fsdp"] if layout.dp > 1 else mesh["fsdp"]
        self._layout = layout
        self._cut: list[FSDPModule] = []
        self._policy = MixedPrecisionPolicy()
        if layout.precision == "bf16":
            self._policy = MixedPrecisionPolicy(
                param_dtype=torch.bfloat16, reduce_dtype=torch.float32
            )

    def cut_layer(self, layer: nn.Module) -> None:
        """Slice a layer."""
        self._add(fully_shard(layer, mesh=self._mesh, mp_policy=self._policy))

    def cut_root(self, stage: Stage) -> None:
        """Slice what a stage holds beside its layers."""
        self._add(
            fully_shard(
                stage,
                mesh=self._mesh,
                mp_policy=self._policy,
                reshard_after_forward=False,
            )
        )

    def _add(self, module: FSDPModule) -> None:
        # The loss is divided by the global count already: sum, do not average.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
        self._cut.append(module)

    def reduce(self, *, last: bool) -> None:
        """Scatter gradients, and sum them over dp, in the last micro-batch only."""
        for module in self._cut:
            module.set_requires_gradient_sync(last, recurse=False)

    def finish(self, stages: Sequence[Stage]) -> None:
        """Slice what is whole, and sum shards over cp, one unit at a time."""
        self.let_go()
        if self._layout.cp == 1:
            return
        group = self._whole_mesh["cp"].get_group()
        for stage in stages:
            for layer in stage.layers.values():
                _sum(list(layer.parameters()), self._layout.fsdp, group)
            inside = {
                id(p) for layer in stage.layers.values() for p in layer.parameters()
            }
            rest = [p for p in stage.parameters() if id(p) not in inside]
            if rest:
                _sum(rest, self._layout.fsdp, group)

    def let_go(self) -> None:
        """Slice what is still whole."""
        for module in self._cut:
            module.reshard()


def _sum(parameters: list[nn.Parameter], degree: int, group: dist.ProcessGroup) -> None:
    """Sum a unit's gradients, each padded to a full chunk as FSDP2's own traffic is."""
    sizes = [_chunk_elements(parameter, degree) for parameter in parameters]
    first = parameters[0].grad
    assert first is not None, "every unit takes part in the loss"
    flat = local(first).new_zeros(sum(sizes))
    places = flat.split(sizes)
    gradients = [
        local(parameter.grad) for parameter in parameters if parameter.grad is not None
    ]
    for gradient, place in zip(gradients, places, strict=True):
        place[: gradient.numel()].copy_(gradient.reshape(-1))
    dist.all_reduce(flat, group=group)
    for gradient, place in zip(gradients, places, strict=True):
        gradient.copy_(place[: gradient.numel()].view_as(gradient))


def _chunk_elements(parameter: nn.Parameter, degree: int) -> int:
    """Elements of a full chunk of a parameter, of which a rank may hold fewer."""
    held = local(parameter)
    rest = held[:1].numel() if held.shape[0] else held.numel()
    return _chunk_rows(parameter, degree) * max(rest, 1)


def _chunk_rows(parameter: nn.Parameter, degree: int) -> int:
    assert isinstance(parameter, DTensor)
    rows = parameter.shape[0]
    names = parameter.device_mesh.mesh_dim_names or ()
    if "tp" in names:
        place = names.index("tp")
        if parameter.placements[place].is_shard(0):
            rows = -(-rows // parameter.device_mesh.size(place))
    return -(-rows // degree)
