"""WHAT is trained, as numbers: blocks with parameters, FLOPs and activation bytes."""

from workbench.model.presets import PRESETS, model
from workbench.model.spec import Block, ModelSpec, Parameter, Saved

__all__ = ["PRESETS", "Block", "ModelSpec", "Parameter", "Saved", "model"]
