"""WHAT is trained, as numbers: blocks with parameters, FLOPs and activation bytes."""

from workbench.model.spec import Block, ModelSpec, Parameter, Saved

__all__ = ["Block", "ModelSpec", "Parameter", "Saved"]
