"""The scalars that ranks sum once a step: planner and strategies agree on them.

One all-reduce carries them all, as float64, over every rank of the grid (axis "world").
"""

from workbench.layout.layout import Layout

SCALAR_DTYPE = "float64"


def step_scalars(layout: Layout) -> tuple[str, ...]:
    """Return what is summed over ranks in each step, in order.

    The loss sum and the token count make the mean of an uneven batch right. Where a
    rank holds only a shard of each gradient, its square sum is needed for the norm;
    plain data parallelism has whole gradients everywhere and sends nothing for it.

    >>> step_scalars(Layout(dp=2))
    ('loss_sum', 'num_tokens')
    """
    if layout.fsdp > 1:
        return ("loss_sum", "num_tokens", "gradient_square_sum")
    return ("loss_sum", "num_tokens")
