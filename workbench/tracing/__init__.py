"""Any nn.Module as a ModelSpec, without allocating it (torch)."""

from workbench.tracing.trace import trace

__all__ = ["trace"]
