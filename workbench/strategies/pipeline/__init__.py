"""Pipeline parallelism: layers cut into stages, micro-batches passed along them."""

from workbench.strategies.pipeline.run import PipelineRun
from workbench.strategies.pipeline.schedules import Action, actions, check_schedule
from workbench.strategies.pipeline.stages import Stage, cut_stages, held_parts

__all__ = [
    "Action",
    "PipelineRun",
    "Stage",
    "actions",
    "check_schedule",
    "cut_stages",
    "held_parts",
]
