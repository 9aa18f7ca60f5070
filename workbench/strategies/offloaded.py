"""Any strategy, with activations or optimizer states beyond the device.

Activations swap (S01), whatever cuts the net; optimizer states are made in the host tier
and updated there. Neither changes a bit of what is computed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from workbench.collectives.ranks import Ranks
from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.offload.optimizer_states import StatesIn, keep_states_in
from workbench.offload.placement import place_gradients, place_parameters
from workbench.offload.swap import Swap
from workbench.offload.tiers import Tier, host_tier
from workbench.planner.offload import SwapSetting
from workbench.strategies.composed import Composed
from workbench.strategies.contract import Settings, StateBytes, StepResult, Strategy
from workbench.strategies.nets import Decoder
from workbench.strategies.sharded_data_parallel import ShardedDataParallel
from workbench.strategies.whole import Batch, WholeNet

#: Of everything, with the next transfer always under way.
DEFAULT_SWAP = SwapSetting(num_tensors=-1, lower=2, upper=2)


class HostSharded(ShardedDataParallel):
    """FSDP2 whose slices of weights and gradients lie in another tier between uses.

    Args:
        settings: As of all strategies.
        tier: Where they lie; None for the device's host tier.
    """

    def __init__(self, settings: Settings, *, tier: Tier | None = None) -> None:
        super().__init__(settings)
        self._tier = tier

    def wrap(self, net: Decoder) -> nn.Module:
        """Make, slice and send away one layer after the other."""
        if self.ranks.device.type == "cuda":
            raise LayoutError(
                "fsdp with weights on the host runs on CPU-only machines so far",
                hint="leave weights out of offload, or stream over dp",
            )
        self._tier = self._tier or host_tier(self.ranks.device)
        wrapped = super().wrap(net)
        place_gradients(wrapped, self._tier)
        return wrapped

    def cut(self, module: nn.Module) -> None:
        """Slice a layer, or what is left of the net, and move its slices."""
        super().cut(module)
        assert self._tier is not None
        place_parameters(module, self._tier)

    def state_bytes(self) -> StateBytes:
        """Return the bytes on the device by kind: between two steps, none."""
        return StateBytes(
            weights=0, gradients=0, optimizer=super().state_bytes().optimizer
        )

    def held_bytes(self) -> int:
        """Return the bytes on the device between two steps."""
        return self.state_bytes().optimizer


class Offloaded(Strategy):
    """A strategy whose activations or optimizer states live in another tier.

    Args:
        inner: The strategy that does the training.
        swap: Which activations leave, and when they return.
        tier: Where they and the states go; None for the device's own host tier.
    """

    def __init__(
        self,
        inner: WholeNet,
        *,
        swap: SwapSetting = DEFAULT_SWAP,
        tier: Tier | None = None,
    ) -> None:
        self.inner = inner
        self._setting = swap
        self._tier = tier
        self.swap: Swap | None = None

    def prepare(self, module: nn.Module, layout: Layout, ranks: Ranks) -> nn.Module:
        """Prepare the inner strategy, then redirect what the layout sends away.

        Raises:
            LayoutError: Optimizer states of a GPU's own parameters.
        """
        net = self.inner.prepare(module, layout, ranks)
        self.tier = self._tier or host_tier(ranks.device)
        self._states_away = "optimizer" in layout.offload
        if self._states_away:
            if ranks.device.type == "cuda":
                raise LayoutError(
                    "offload=optimizer alone needs parameters that the host can update",
                    hint='stream: offload=("optimizer", "activations", "weights")',
                )
            keep_states_in(self.tier, self.inner.optimizer)
        if "activations" in layout.offload:
            self.swap = Swap(
                self.inner.net, self._setting, self.tier, device=ranks.device
            )
            for part in self._forwards():
                self.swap.attach(part)
        return net

    def _forwards(self) -> Sequence[nn.Module]:
        """Return the modules whose forwards make up this rank's share of a step."""
        if isinstance(self.inner, Composed):
            return list(self.inner.stages)
        return [self.inner.net]

    def step(self, batch: Batch, *, learning_rate: float) -> StepResult:
        """Run forward, backward and optimizer on this rank's share of a global batch."""
        return self.inner.step(batch, learning_rate=learning_rate)

    def reset(self) -> None:
        """Make ready for a clean step after one that was broken off."""
        self.inner.reset()

    def evaluate(self, batch: Batch) -> tuple[float, int]:
        """Return mean loss and tokens of a global batch of which this is a share."""
        return self.inner.evaluate(batch)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V] of tokens [B, T], without gradients."""
        return self.inner.logits(tokens)

    def state_bytes(self) -> StateBytes:
        """Return the bytes on the device by kind."""
        held = self.inner.state_bytes()
        return StateBytes(
            weights=held.weights,
            gradients=held.gradients,
            optimizer=0 if self._states_away else held.optimizer,
        )

    def held_bytes(self) -> int:
        """Return the bytes on the device between two steps."""
        away = self.inner.state_bytes().optimizer if self._states_away else 0
        return self.inner.held_bytes() - away

    def gather_state(self) -> dict[str, Any]:
        """Return model and optimizer state in a form that DCP saves sharded."""
        if not self._states_away:
            return self.inner.gather_state()
        with StatesIn(self.tier):
            return self.inner.gather_state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `gather_state` gave, after DCP has filled it."""
        if not self._states_away:
            self.inner.load_state(state)
            return
        with StatesIn(self.tier):
            self.inner.load_state(state)
