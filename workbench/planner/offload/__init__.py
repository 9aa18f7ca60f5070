"""What memory beyond the device costs, as pure functions (planner.md 3.12)."""

from workbench.planner.offload.link import Link
from workbench.planner.offload.swap import (
    SavedTensor,
    SwapCost,
    SwapSetting,
    swap_cost,
    tune_swap,
)

__all__ = [
    "Link",
    "SavedTensor",
    "SwapCost",
    "SwapSetting",
    "swap_cost",
    "tune_swap",
]
