"""One process trains the whole net on the whole batch: what all others are held to."""

from torch import nn

from workbench.strategies.nets import Decoder, materialize
from workbench.strategies.whole import WholeNet


class Reference(WholeNet):
    """Plain training on one rank."""

    @property
    def gradient_copies(self) -> int:
        """The only rank has the only copy."""
        return 1

    def wrap(self, net: Decoder) -> nn.Module:
        """Give the net its values."""
        materialize(net, self.ranks.device, seed=self.settings.seed)
        return net
