"""What every way of training offers to the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from workbench.collectives.ranks import Ranks
from workbench.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a step needs beside the layout; the same on every rank.

    Args:
        nominal_tokens: Tokens of a full global batch. Losses are divided by it, and
            gradients corrected by the true count, so that no rank must know the others'
            shares before its backward.
        seed: Of the initial values.
        max_grad_norm: Gradients above this global norm are scaled down to it.
        weight_decay: AdamW's, for matrices; vectors are not decayed.
        betas: AdamW's.
        eps: AdamW's.
    """

    nominal_tokens: int
    seed: int = 0
    max_grad_norm: float = 1.0
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step of one rank gave.

    Args:
        loss: Mean loss over the *global* batch, nats per token, equal on all ranks.
        grad_norm: Global gradient norm before clipping, equal on all ranks.
        num_tokens: Tokens of the global batch.
        seconds: Where this rank's time went, by phase name ("forward", ...).
    """

    loss: float
    grad_norm: float
    num_tokens: int
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """Bytes of the tensors that this rank holds between steps, by kind."""

    weights: int
    gradients: int
    optimizer: int


class Strategy(ABC):
    """One way of training: what one rank does with its module and its batch share.

    A strategy predicts nothing: traffic and memory formulas live in the planner. It is
    compared with `reference`, and every byte it sends goes through `collectives`.
    """

    @abstractmethod
    def prepare(self, module: nn.Module, layout: Layout, ranks: Ranks) -> nn.Module:
        """Return the module that this rank trains: wrapped, cut, or as it was.

        Args:
            module: A net on the meta device; its values are made here.
            layout: Degrees and how a step is run.
            ranks: This rank's view of the group.
        """

    @abstractmethod
    def step(
        self, batch: tuple[torch.Tensor, torch.Tensor], *, learning_rate: float
    ) -> StepResult:
        """Run forward, backward and optimizer on this rank's share of a global batch."""

    @abstractmethod
    def reset(self) -> None:
        """Make ready for a clean step after one that was broken off."""

    @abstractmethod
    def evaluate(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, int]:
        """Return mean loss and tokens of a global batch of which this is a share."""

    @abstractmethod
    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V] of tokens [B, T], without gradients."""

    @abstractmethod
    def state_bytes(self) -> StateBytes:
        """Return the bytes of this rank's tensors by kind, from the tensors."""

    @abstractmethod
    def held_bytes(self) -> int:
        """Return the bytes of all tensors that live on between two steps."""

    @abstractmethod
    def gather_state(self) -> dict[str, Any]:
        """Return model and optimizer state in a form that DCP saves sharded."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Take back what `gather_state` gave, after DCP has filled it."""
