"""Data parallelism whose ranks share the optimizer's work (ZeRO 1 and 2, 1910.02054).

Every rank holds the whole net. Of each unit a rank owns one equal run of elements: it
gets that run's summed gradient, steps it, and all ranks gather the new weights. Stage 1
keeps whole gradients through the step, stage 2 drops a unit's as soon as it is sent.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from workbench.collectives.ranks import Ranks
from workbench.layout import Layout
from workbench.strategies.contract import StateBytes
from workbench.strategies.nets import Decoder, materialize
from workbench.strategies.units import units
from workbench.strategies.whole import (
    MOMENTS,
    WholeNet,
    adamw_of,
    bytes_of,
)


class OwnedUnit:
    """One unit's weights in one flat buffer, and the run of it that this rank owns.

    Args:
        parameters: The unit's; their values become views of the buffer.
        mesh: The axis' own mesh, of one dim.
        num_microbatches: Backwards of one step; the last one's gradients are sent.
        keeps_gradients: Whether whole gradients stay (stage 1).
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        mesh: DeviceMesh,
        *,
        num_microbatches: int,
        keeps_gradients: bool,
    ) -> None:
        self.parameters = parameters
        self._mesh = mesh
        self._sizes = [parameter.numel() for parameter in parameters]
        self._additions = len(parameters) * num_microbatches
        self._missing = self._additions
        self._chunk = -(-sum(self._sizes) // mesh.size())
        first = parameters[0]
        padded = self._chunk * mesh.size()
        self.weights = torch.zeros(padded, dtype=first.dtype, device=first.device)
        self._flat = torch.zeros_like(self.weights) if keeps_gradients else None
        for parameter, view in zip(parameters, self._views(self.weights), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.register_post_accumulate_grad_hook(self._filled)
        self.segments = [nn.Parameter(part) for part in self.own_parts(self.weights)]
        self._sum: torch.Tensor | None = None
        self._sent: tuple[dist.Work, torch.Tensor] | None = None
        self.empty()

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return the parts of a whole buffer in the parameters' shapes."""
        parts = flat[: sum(self._sizes)].split(self._sizes)
        return [
            part.view(parameter.shape)
            for part, parameter in zip(parts, self.parameters, strict=True)
        ]

    def own_parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return, of each parameter, the elements that this rank owns; perhaps none."""
        low = self._mesh.get_local_rank() * self._chunk
        own, parts, begin = flat[low : low + self._chunk], [], 0
        for size in self._sizes:
            start = min(max(begin - low, 0), self._chunk)
            stop = min(max(begin + size - low, start), self._chunk)
            parts.append(own[start:stop])
            begin += size
        return parts

    def _filled(self, _: torch.Tensor) -> None:
        """Count a gradient that is complete; send the unit's after the last one."""
        self._missing -= 1
        if self._missing:
            return
        whole = self._flat
        if whole is None:
            whole = torch.zeros_like(self.weights)
            for parameter, view in zip(
                self.parameters, self._views(whole), strict=True
            ):
                assert parameter.grad is not None, "it has just been filled"
                view.copy_(parameter.grad)
                parameter.grad = None
        self._sum = torch.empty_like(whole[: self._chunk])
        work = dist.reduce_scatter_single(
            self._sum, whole, group=self._mesh.get_group(), async_op=True
        )
        assert work is not None
        self._sent = (work, whole)

    def finish(self) -> None:
        """Wait until this rank's run of gradients is the sum over all ranks."""
        if self._sent is None or self._sum is None:
            return
        self._sent[0].wait()
        self._sent = None
        begin = 0
        for segment in self.segments:
            segment.grad = self._sum[begin : begin + segment.numel()]
            begin += segment.numel()

    def gather(self) -> None:
        """Give every rank the weights that their owners have stepped."""
        low = self._mesh.get_local_rank() * self._chunk
        own = self.weights[low : low + self._chunk].clone()
        dist.all_gather_single(self.weights, own, group=self._mesh.get_group())

    def gathered(self, own_parts: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return whole tensors of which each rank has its own parts."""
        own = torch.zeros(
            self._chunk, dtype=self.weights.dtype, device=self.weights.device
        )
        joined = torch.cat(own_parts)
        own[: len(joined)] = joined
        whole = torch.empty_like(self.weights)
        dist.all_gather_single(whole, own, group=self._mesh.get_group())
        return self._views(whole)

    def own_of_whole(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return this rank's own parts of whole tensors."""
        flat = torch.zeros_like(self.weights)
        for view, tensor in zip(self._views(flat), tensors, strict=True):
            view.copy_(tensor)
        return self.own_parts(flat)

    def empty(self) -> None:
        """Make ready for the next backward, also after one that was broken off."""
        self._missing, self._sent, self._sum = self._additions, None, None
        for segment in self.segments:
            segment.grad = None
        if self._flat is None:
            for parameter in self.parameters:
                parameter.grad = None
            return
        self._flat.zero_()
        for parameter, view in zip(
            self.parameters, self._views(self._flat), strict=True
        ):
            parameter.grad = view


class ZeroDataParallel(WholeNet):
    """Replicas that share optimizer state, and at stage 2 gradients."""

    def prepare(self, module: nn.Module, layout: Layout, ranks: Ranks) -> nn.Module:
        """Give the net its values, share it out, and make the optimizer."""
        self._stage = layout.zero
        net = super().prepare(module, layout, ranks)
        pairs = list(self._owned())
        self.optimizer = adamw_of(
            [segment for segment, parameter in pairs if parameter.ndim >= 2],
            [segment for segment, parameter in pairs if parameter.ndim < 2],
            self.settings,
        )
        return net

    def wrap(self, net: Decoder) -> nn.Module:
        """Give the net its values, equal on all ranks, and lay out its units."""
        materialize(net, self.ranks.device, seed=self.settings.seed)
        self.units = [
            OwnedUnit(
                unit,
                self.ranks.mesh["dp"],
                num_microbatches=self.num_microbatches,
                keeps_gradients=self._stage == 1,
            )
            for unit in units(net)
        ]
        return net

    def _owned(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Return (segment, parameter) of every parameter."""
        return [
            pair
            for unit in self.units
            for pair in zip(unit.segments, unit.parameters, strict=True)
        ]

    @property
    def gradient_copies(self) -> int:
        """Every summed gradient element lives on one rank."""
        return 1

    def finish_gradients(self) -> None:
        """Wait for every unit."""
        for unit in self.units:
            unit.finish()

    def local_gradients(self) -> list[torch.Tensor]:
        """Return the gradients of what this rank owns."""
        return [s.grad for s, _ in self._owned() if s.grad is not None and s.numel()]

    def _update(self, learning_rate: float, norm: float, count: int) -> None:
        super()._update(learning_rate, norm, count)
        for unit in self.units:
            unit.gather()

    def zero_gradients(self) -> None:
        """Make ready for the next step's backward."""
        for unit in self.units:
            unit.empty()

    def state_bytes(self) -> StateBytes:
        """Return the bytes of this rank's tensors by kind, from the tensors."""
        whole = super().state_bytes()
        if self._stage == 1:
            return whole
        return StateBytes(
            weights=whole.weights,
            gradients=bytes_of(segment for segment, _ in self._owned()),
            optimizer=whole.optimizer,
        )

    # Checkpoints --------------------------------------------------------------------

    def gather_state(self) -> dict[str, Any]:
        """Return whole tensors by name: moments are gathered from their owners."""
        self._make_optimizer_state()
        names = {id(p): name for name, p in self.net.named_parameters()}
        state: dict[str, Any] = {
            "model": {n: p.detach() for n, p in self.net.named_parameters()}
        }
        for key in MOMENTS:
            state[key] = {}
            for unit in self.units:
                mine = [self.optimizer.state[segment][key] for segment in unit.segments]
                whole = mine if key == "step" else unit.gathered(mine)
                state[key] |= {
                    names[id(p)]: tensor
                    for p, tensor in zip(unit.parameters, whole, strict=True)
                }
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `gather_state` gave, after DCP has filled it in place."""
        self._make_optimizer_state()
        names = {id(p): name for name, p in self.net.named_parameters()}
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                parameter.copy_(state["model"][name])
            for unit in self.units:
                for key in MOMENTS:
                    tensors = [state[key][names[id(p)]] for p in unit.parameters]
                    own = tensors if key == "step" else unit.own_of_whole(tensors)
                    for segment, value in zip(unit.segments, own, strict=True):
                        self.optimizer.state[segment][key].copy_(value)
