"""What memory beyond the device costs, as pure functions."""

from workbench.planner.offload.cache import CacheCost, cache_cost
from workbench.planner.offload.link import Link
from workbench.planner.offload.states import HostStep, host_step
from workbench.planner.offload.stream import (
    StreamCost,
    StreamedUnit,
    least_tokens,
    stream_cost,
)
from workbench.planner.offload.swap import (
    SavedTensor,
    SwapCost,
    SwapSetting,
    swap_cost,
    tune_swap,
)

__all__ = [
    "CacheCost",
    "HostStep",
    "Link",
    "SavedTensor",
    "StreamCost",
    "StreamedUnit",
    "SwapCost",
    "SwapSetting",
    "cache_cost",
    "host_step",
    "least_tokens",
    "stream_cost",
    "swap_cost",
    "tune_swap",
]
