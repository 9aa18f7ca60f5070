"""The wrapped process group and its observers (torch)."""

from workbench.collectives.group import RankGroup
from workbench.collectives.ranks import Ranks

__all__ = ["RankGroup", "Ranks"]
