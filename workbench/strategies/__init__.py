"""What one rank does: one file per way of training (torch).

Shape letters of this room: B batch, T tokens, D model width, F feed-forward width,
H heads, K head width, V vocabulary. A capital is the whole dim, lower case this
rank's share.

Rooms: `movement` moves data with adjoints, and the axes are built of it: `tensor` (tp),
`context` (cp), `experts` (ep), `spatial` (sx, sy, sz), `pipeline` and `placed` (pp, for
our nets and for any module). `composed` joins them for our nets, `parallelize` for a
person's own module, `serving` answers prompts.
"""

from workbench.strategies.choose import build, check
from workbench.strategies.contract import Settings, StateBytes, StepResult, Strategy

__all__ = ["Settings", "StateBytes", "StepResult", "Strategy", "build", "check"]
