"""What a call of `Trainer.fit` gave."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """Losses and speed of the steps that one call of `fit` ran.

    Args:
        first_step, last_step: Steps done before and after, from the run's begin.
        losses: Training loss of each step, nats per token over the global batch.
        val_losses: (steps done, validation loss) of every evaluation.
        tokens_per_s: Over the steps alone, without evaluations and checkpoints.
        seconds: Of the whole call.
    """

    first_step: int
    last_step: int
    losses: tuple[float, ...]
    val_losses: tuple[tuple[int, float], ...]
    tokens_per_s: float
    seconds: float

    @property
    def val_loss(self) -> float | None:
        """The last validation loss; None where none was asked for."""
        return self.val_losses[-1][1] if self.val_losses else None

    def __repr__(self) -> str:
        """Tell what is equal on all ranks, so that their outputs group into one."""
        text = f"steps {self.first_step}-{self.last_step}"
        if self.losses:
            text += f", loss {self.losses[0]:.3f} -> {self.losses[-1]:.3f}"
        if self.val_losses:
            first, last = self.val_losses[0][1], self.val_losses[-1][1]
            text += f", validation {first:.3f} -> {last:.3f} nats per token"
        return f"FitResult({text})"
