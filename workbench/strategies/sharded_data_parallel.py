"""Every rank holds a slice of every tensor and gathers a layer when it needs it.

Torch's FSDP2 does the work: each transformer layer is a unit of its own, everything
else is the root unit, which stays gathered between forward and backward.
"""

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from workbench.strategies.nets import Decoder, materialize
from workbench.strategies.whole import Batch, WholeNet


class ShardedDataParallel(WholeNet):
    """Slices of weights, gradients and optimizer state; whole layers only in use."""

    @property
    def gradient_copies(self) -> int:
        """Every gradient element lives on one rank."""
        return 1

    def wrap(self, net: Decoder) -> nn.Module:
        """Make and slice one layer after the other, so that none but one is whole."""
        materialize(
            net,
            self.ranks.device,
            seed=self.settings.seed,
            after_layer=self.cut,
        )
        self.cut(net)
        for module in (net, *net.layers):
            assert isinstance(module, FSDPModule)
            # The loss is divided by the global count already: sum, do not average.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
        return net

    def cut(self, module: nn.Module) -> None:
        """Slice a layer, or what is left of the net."""
        fully_shard(module, mesh=self.ranks.mesh)

    def reset(self) -> None:
        """Slice every layer again and drop the gradients of a broken step."""
        for module in self.net.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        super().reset()

    def evaluate(self, batch: Batch) -> tuple[float, int]:
        """Return mean loss and tokens of a global batch of which this is a share."""
        result = super().evaluate(batch)
        self._let_go()
        return result

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V] of tokens [B, T]; all ranks must call this."""
        result = super().logits(tokens)
        self._let_go()
        return result

    def _let_go(self) -> None:
        """Slice the root again, which only a backward would do otherwise."""
        assert isinstance(self.net, FSDPModule)
        self.net.reshard()
