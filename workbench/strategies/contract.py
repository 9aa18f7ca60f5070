"""What every way of training offers to the training loop."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from workbench.collectives.ranks import Ranks
from workbench.layout import Layout


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step of one rank gave.

    Args:
        loss: Mean loss over the *global* batch, nats per token, equal on all ranks.
        grad_norm: Global gradient norm before clipping, equal on all ranks.
        num_tokens: Tokens of the global batch.
    """

    loss: float
    grad_norm: float
    num_tokens: int


class Strategy(ABC):
    """One way of training: what one rank does with its module and its batch share.

    A strategy predicts nothing: traffic and memory formulas live in the planner. It is
    compared with `reference`, and every byte it sends goes through `collectives`.
    """

    @abstractmethod
    def prepare(self, module: nn.Module, layout: Layout, ranks: Ranks) -> nn.Module:
        """Return the module that this rank trains: wrapped, cut, or as it was."""

    @abstractmethod
    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> StepResult:
        """Run forward, backward and optimizer on this rank's share of a global batch."""

    @abstractmethod
    def gather_state(self) -> dict[str, Any]:
        """Return model and optimizer state in a form that DCP saves sharded."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `gather_state` gave, after DCP has filled it."""
