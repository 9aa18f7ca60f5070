"""The host owns the net and trains it through two units on the device (S07).

`offload.streaming` does the work; here are the decoder's units, the sums over replicas,
clipping, and what the training loop wants to know. Replicas on one machine keep one copy
of weights and states between them, and each updates its part.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from workbench.collectives.ranks import Ranks
from workbench.layout import Layout
from workbench.offload.host_units import Unit
from workbench.offload.optimizer_states import StatesIn
from workbench.offload.sharing import SharedHostTier, Sharing
from workbench.offload.streaming import Streamed, StreamEvent, Streaming
from workbench.offload.tiers import Tier, host_tier
from workbench.strategies import nets
from workbench.strategies.contract import Settings, StateBytes
from workbench.strategies.nets import Decoder
from workbench.strategies.whole import Batch, Clock, WholeNet, adamw

#: A file system in memory, where the ranks of a machine meet in a private folder.
_MEMORY = "/dev/shm"  # noqa: S108


class End(nn.Module):
    """The last unit: final norm and output matrix."""

    def __init__(self, net: Decoder) -> None:
        super().__init__()
        self.norm = net.norm
        self.head = net.head

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> logits [B, T, V]."""
        logits_BTV: torch.Tensor = self.head(self.norm(x_BTD))
        return logits_BTV


class StreamedNet(WholeNet):
    """Training whose device memory does not depend on depth; alone or over dp.

    Args:
        settings: As of all strategies.
        weights: Tier of parameters and gradients; None for the device's host tier.
        states: Tier of optimizer states; None for the same.
        checkpoint_every: Layers per kept input.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        weights: Tier | None = None,
        states: Tier | None = None,
        checkpoint_every: int = 1,
    ) -> None:
        super().__init__(settings)
        self._weights = weights
        self._states = states
        self._every = checkpoint_every

    @property
    def gradient_copies(self) -> int:
        """Every rank has seen every summed gradient."""
        return self.ranks.world_size

    def prepare(self, module: nn.Module, layout: Layout, ranks: Ranks) -> nn.Module:
        """Give the net its values unit by unit, on the host."""
        assert isinstance(module, Decoder)
        self.ranks = ranks
        self.num_microbatches = layout.num_microbatches
        self.net = self.wrap(module)
        return self.net

    def wrap(self, net: Decoder) -> nn.Module:
        """Move the net to the host; what remains has no values."""
        self._end = len(net.layers) + 1
        self._norms: list[list[torch.Tensor]] = []
        private = host_tier(self.ranks.device)
        folder = self._shared_folder()
        weights = self._weights or private
        if folder is not None:
            weights = SharedHostTier(folder, pinned=private.pinned)
        self._state_tier = self._states or private
        how = Streaming(
            weights=weights,
            states=self._state_tier,
            activations=private,
            optimizer_of=lambda own: adamw(nn.ParameterList(own), self.settings),
            checkpoint_every=self._every,
            tied={"head.weight": "embedding.tokens.weight"} if net.tied else {},
            reduce=self._sum_over_replicas if self.ranks.world_size > 1 else None,
            sharing=self._sharing() if folder is not None else None,
            record=self._moment,
        )
        self.streamed = Streamed(self._units(net), self.ranks.device, how)
        if isinstance(weights, SharedHostTier):
            weights.seal()  # all ranks have met in the constructor
        return net

    def _shared_folder(self) -> Path | None:
        """Return a folder in memory that all ranks see, None where they see none."""
        if self.ranks.world_size == 1 or self._weights is not None:
            return None
        group = self.ranks.mesh.get_group("dp")
        named = [tempfile.mkdtemp(dir=_MEMORY) if self.ranks.rank == 0 else None]
        dist.broadcast_object_list(named, src=0, group=group)
        assert named[0] is not None
        folder = Path(named[0])
        seen = torch.tensor([float(folder.is_dir())])
        dist.all_reduce(seen, op=dist.ReduceOp.MIN, group=group)
        if seen.item():
            return folder
        if self.ranks.rank == 0:
            folder.rmdir()
        return None

    def _sharing(self) -> Sharing:
        group = self.ranks.mesh.get_group("dp")
        return Sharing(
            rank=self.ranks.rank,
            num_ranks=self.ranks.world_size,
            wait=lambda: dist.barrier(group=group),
        )

    def _units(self, net: Decoder) -> list[Unit]:
        num_layers, seed = len(net.layers), self.settings.seed

        def unit(name: str, module: nn.Module) -> Unit:
            def fill(part: nn.Module) -> None:
                prefix = f"{name}." if name else ""
                nets.fill(part, prefix, self.ranks.device, num_layers, seed)

            return Unit(name=name, module=module, fill=fill)

        layers = [unit(f"layers.{i}", layer) for i, layer in enumerate(net.layers)]
        return [unit("embedding", net.embedding), *layers, unit("", End(net))]

    def _sum_over_replicas(self, gradients: list[torch.Tensor]) -> None:
        """Sum a unit's gradients over the ranks of dp, as one message."""
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat, group=self.ranks.mesh.get_group("dp"))
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        self._norms.append(list(torch._foreach_norm(gradients)))

    def gradient_squares(self) -> torch.Tensor:
        """Return this rank's share of the squared norm, summed in the net's order.

        The norms were taken as the sums passed by: the host may hold a part of them.
        """
        if self.ranks.world_size == 1:
            return super().gradient_squares()
        norms = [norm for unit in reversed(self._norms) for norm in unit]
        return torch.stack(norms).double().square().sum() / self.gradient_copies

    # A step -------------------------------------------------------------------------

    def _forward_backward(self, batch: Batch, clock: Clock) -> torch.Tensor:
        """Bring all gradients to the host; return the loss sum."""
        total = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        inputs, targets = (
            x.to(self.ranks.device).tensor_split(self.num_microbatches) for x in batch
        )

        def loss(logits: torch.Tensor, number: int) -> torch.Tensor:
            loss_sum = self._loss_of(logits, targets[number])
            total.add_(loss_sum.detach())
            return loss_sum / self.settings.nominal_tokens

        self._clock = clock
        self._norms.clear()
        self.streamed.forward_backward(inputs, loss)
        clock.lap("backward")
        return total

    def _moment(self, event: StreamEvent) -> None:
        """End the forward's lap where the last unit begins."""
        if event.moment == "compute begins" and event.unit == self._end:
            self._clock.lap("forward")

    def _loss_of(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="sum"
        )

    def _loss_sum(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self._loss_of(self.logits(inputs), targets.to(self.ranks.device))

    def _update(self, learning_rate: float, norm: float, count: int) -> None:
        """Begin the optimizer on the host; the next forward follows behind it."""
        scale = self.settings.nominal_tokens / count
        scale *= min(1.0, self.settings.max_grad_norm / (norm + 1e-6))
        self.streamed.update(scale=scale, learning_rate=learning_rate)

    def local_gradients(self) -> list[torch.Tensor]:
        """Return the gradients on the host."""
        return list(self.streamed.gradients().values())

    def zero_gradients(self) -> None:
        """Nothing to do: the next backward overwrites them."""

    # Beside the step ----------------------------------------------------------------

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V] of tokens [B, T], without gradients."""
        self._clock = Clock()
        return self.streamed.forward(tokens.to(self.ranks.device))

    def state_bytes(self) -> StateBytes:
        """Return the bytes on the device: two buffers, whatever the depth."""
        return StateBytes(weights=self.held_bytes(), gradients=0, optimizer=0)

    def held_bytes(self) -> int:
        """Return the bytes on the device between two steps."""
        return self.streamed.window.held_bytes

    def gather_state(self) -> dict[str, Any]:
        """Return model and optimizer state, by parameter name, as they lie on the host."""
        parameters = self.streamed.parameters()
        state: dict[str, Any] = {"model": {n: p.data for n, p in parameters.items()}}
        for unit in self.streamed.units:
            for name in unit.gradients:
                moments = self._moments(unit.optimizer, unit.own[name])
                for key, value in moments.items():
                    state.setdefault(key, {})[unit.full(name)] = value
        return state

    def _moments(
        self, optimizer: torch.optim.Optimizer | None, parameter: nn.Parameter
    ) -> dict[str, torch.Tensor]:
        assert optimizer is not None
        if not optimizer.state[parameter]:
            with StatesIn(self._state_tier):
                optimizer.state[parameter] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                    "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
                }
        moments: dict[str, torch.Tensor] = optimizer.state[parameter]
        return moments
