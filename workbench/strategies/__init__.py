"""What one rank does: one file per way of training (torch).

Shape letters of this room: B batch, T tokens, D model width, F feed-forward width,
H heads, K head width, V vocabulary. A capital is the whole dim, lower case this
rank's share.
"""

from workbench.strategies.choose import build, check
from workbench.strategies.contract import Settings, StateBytes, StepResult, Strategy

__all__ = ["Settings", "StateBytes", "StepResult", "Strategy", "build", "check"]
