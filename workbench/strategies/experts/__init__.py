"""Expert parallelism: a mixture of experts whose experts live on different ranks.

The ranks of the axis see different samples; tokens travel to their experts and back.
To use: build `MixtureOfExperts` with the whole's values, then `spread(moe, ranks.mesh)`.
"""

from workbench.strategies.experts.gate import Routing, balance_share, route
from workbench.strategies.experts.layer import Experts, MixtureOfExperts, spread

__all__ = [
    "Experts",
    "MixtureOfExperts",
    "Routing",
    "balance_share",
    "route",
    "spread",
]
