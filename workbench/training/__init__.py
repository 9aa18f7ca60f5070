"""The step and the loop: strategy, data, schedule, checkpoint (torch)."""

from workbench.training.checkpoint import latest
from workbench.training.result import FitResult
from workbench.training.trainer import Trainer
from workbench.training.warm import warm

__all__ = ["FitResult", "Trainer", "latest", "warm"]
