"""Data movement between ranks as linear operators, each with its adjoint (S06).

With the inner product summed over all ranks, the adjoint of a broadcast is a
sum-reduce, of a gather a scatter, of an exchange of halos the addition of each halo onto
the edge it was copied from. Each function here is differentiable any number of times,
and its backward is that adjoint.

Two rules follow, and hold for everything built from these functions:

- The objective is the *sum* of what the ranks call `backward` on. Where all ranks hold
  the same loss, average the gradients over those ranks.
- Every rank of the group must take part in the forward and in the backward, in the same
  order, also where it holds nothing: `nothing` stands for data that is elsewhere.
"""

from workbench.strategies.movement.boxes import (
    Box,
    Partition,
    balanced_sizes,
    sent_elements,
)
from workbench.strategies.movement.collective import (
    all_gather,
    all_sum_reduce,
    broadcast,
    nothing,
    reduce_scatter,
    sum_reduce,
)
from workbench.strategies.movement.move import (
    gather,
    halo_exchange,
    move,
    repartition,
    scatter,
)
from workbench.strategies.movement.rows import exchange_counts, exchange_rows

__all__ = [
    "Box",
    "Partition",
    "all_gather",
    "all_sum_reduce",
    "balanced_sizes",
    "broadcast",
    "exchange_counts",
    "exchange_rows",
    "gather",
    "halo_exchange",
    "move",
    "nothing",
    "reduce_scatter",
    "repartition",
    "scatter",
    "sent_elements",
    "sum_reduce",
]
