"""Context parallelism: attention over a sequence that is cut over ranks.

Three ways with equal results: `ring_attention` passes keys and values around,
`gathered_attention` gathers them, `ulysses_attention` exchanges tokens for heads.
Torch's own context parallelism has no CPU path (2.13).
"""

from workbench.strategies.context.gathered import gathered_attention
from workbench.strategies.context.ring import ring_attention
from workbench.strategies.context.tokens import TokenCut
from workbench.strategies.context.ulysses import ulysses_attention

__all__ = ["TokenCut", "gathered_attention", "ring_attention", "ulysses_attention"]
