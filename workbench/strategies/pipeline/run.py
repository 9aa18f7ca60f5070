"""Runs a rank's actions: receives, computes, sends on."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from workbench.strategies.pipeline.schedules import Action
from workbench.strategies.pipeline.stages import Stage

#: Takes a chunk's number and what it gave for a micro-batch of the last stage; returns
#: what to differentiate.
Loss = Callable[[torch.Tensor, int], torch.Tensor]


@dataclass(kw_only=True)
class PipelineRun:
    """One step of one pipeline rank.

    Args:
        stages: This rank's stages by chunk.
        mesh: The axis' own mesh, of one dim.
        tokens: The first stage's input of each micro-batch, [b, t].
        boundary: Shape of what passes between stages, by micro-batch.
        dtype: Of what passes between stages.
        loss: For the last stage.
        surround: Entered around each backward.
        seconds: Time by phase name is added here.
    """

    stages: Sequence[Stage]
    mesh: DeviceMesh
    tokens: Sequence[torch.Tensor]
    boundary: Sequence[tuple[int, ...]]
    dtype: torch.dtype
    loss: Loss
    surround: Callable[[Action], AbstractContextManager[None]]
    seconds: dict[str, float] = field(default_factory=dict)
    _kept: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=dict
    )
    _coming: dict[Action, tuple[torch.Tensor, dist.Work]] = field(default_factory=dict)
    _going: list[tuple[torch.Tensor, dist.Work]] = field(default_factory=list)

    def run(self, order: Sequence[Action]) -> list[torch.Tensor]:
        """Do everything in order; returns what the last stage gave, by micro-batch.

        The next action's input is on its way while this one computes.
        """
        results = []
        for place, action in enumerate(order):
            self._expect(action)
            if place + 1 < len(order):
                self._expect(order[place + 1])
            arrived = self._arrived(action)
            began_s = time.perf_counter()
            if action.kind == "forward":
                output = self._forward(action, arrived)
                if self._number(action) == self._num_stages - 1:
                    results.append(output)
            else:
                self._backward(action, arrived)
            self._add(action.kind, began_s)
        self._finish()
        return results

    # One action ---------------------------------------------------------------------

    def _forward(self, action: Action, arrived: torch.Tensor | None) -> torch.Tensor:
        x = self.tokens[action.microbatch] if arrived is None else arrived
        if arrived is not None and torch.is_grad_enabled():
            x.requires_grad_()
        output: torch.Tensor = self.stages[action.chunk](x)
        if self._number(action) == self._num_stages - 1:
            output = self.loss(output, action.microbatch)
        else:
            self._send(output.detach(), action, step=1)
        if torch.is_grad_enabled():
            self._kept[action.chunk, action.microbatch] = (x, output)
        return output.detach()

    def _backward(self, action: Action, arrived: torch.Tensor | None) -> None:
        x, output = self._kept.pop((action.chunk, action.microbatch))
        with self.surround(action):
            torch.autograd.backward(output, arrived)
        if self._number(action) > 0:
            assert x.grad is not None, "a boundary takes part in the loss"
            self._send(x.grad, action, step=-1)

    # Messages -----------------------------------------------------------------------

    def _expect(self, action: Action) -> None:
        """Begin to receive an action's input, unless it is under way or there is none."""
        number = self._number(action)
        forward = action.kind == "forward"
        if action in self._coming or number == (0 if forward else self._num_stages - 1):
            return
        into = torch.empty(
            self.boundary[action.microbatch], dtype=self.dtype, device=self._device
        )
        source = (
            self.mesh.get_local_rank() + (-1 if forward else 1)
        ) % self.mesh.size()
        work = dist.irecv(
            into,
            group=self.mesh.get_group(),
            group_src=source,
            tag=self._tag(action.kind, number, action.microbatch),
        )
        assert work is not None
        self._coming[action] = (into, work)

    def _arrived(self, action: Action) -> torch.Tensor | None:
        """Wait for an action's input; None where it needs none from another stage."""
        if action not in self._coming:
            return None
        began_s = time.perf_counter()
        tensor, work = self._coming.pop(action)
        work.wait()
        self._add("idle", began_s)
        return tensor

    def _send(self, tensor: torch.Tensor, action: Action, *, step: int) -> None:
        """Send to the stage after (+1) or before (-1); the buffer is kept till the end."""
        target = (self.mesh.get_local_rank() + step) % self.mesh.size()
        number = self._number(action) + step
        tensor = tensor.contiguous()
        work = dist.isend(
            tensor,
            group=self.mesh.get_group(),
            group_dst=target,
            tag=self._tag(action.kind, number, action.microbatch),
        )
        assert work is not None
        self._going.append((tensor, work))

    def _finish(self) -> None:
        began_s = time.perf_counter()
        for _, work in self._going:
            work.wait()
        self._going.clear()
        self._add("idle", began_s)

    # Numbers ------------------------------------------------------------------------

    @property
    def _num_stages(self) -> int:
        return len(self.stages) * self.mesh.size()

    @property
    def _device(self) -> torch.device:
        return self.tokens[0].device

    def _number(self, action: Action) -> int:
        """Number of the stage that an action runs."""
        return action.chunk * self.mesh.size() + self.mesh.get_local_rank()

    def _tag(self, kind: str, number: int, microbatch: int) -> int:
        """One tag per message of a step: direction, receiving stage, micro-batch."""
        direction = 0 if kind == "forward" else 1
        return (microbatch * self._num_stages + number) * 2 + direction

    def _add(self, name: str, began_s: float) -> None:
        took_s = time.perf_counter() - began_s
        self.seconds[name] = self.seconds.get(name, 0.0) + took_s
