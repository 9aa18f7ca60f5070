"""WHICH layout, and why not the others: predictions before anything starts."""

from workbench.planner.contract import (
    CommPlan,
    Explanation,
    MemoryPlan,
    Plan,
    Step,
    StepTime,
)
from workbench.planner.predict import plan

__all__ = [
    "CommPlan",
    "Explanation",
    "MemoryPlan",
    "Plan",
    "Step",
    "StepTime",
    "plan",
]
