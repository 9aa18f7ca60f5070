"""In which order a streamed step visits its units: asked by prediction and run alike."""

from dataclasses import dataclass
from typing import Literal

from workbench.errors import PlanError

Doing = Literal["forward", "recompute", "backward"]


@dataclass(frozen=True)
class Visit:
    """One time that a unit is on the device and computes.

    Args:
        doing: "forward" keeps nothing but, at the start of a group, its input;
            "recompute" makes the inputs inside a group again; "backward" computes a
            unit once more, with its graph, and takes its gradients.
        unit: Its number.
    """

    doing: Doing
    unit: int


def visits(num_units: int, *, checkpoint_every: int = 1) -> tuple[Visit, ...]:
    """Return the visits of one step.

    The last group needs no recompute: its forward ends where its backward begins, and
    the last unit, which gives the loss, is visited once.

    >>> [f"{v.doing[0]}{v.unit}" for v in visits(3)]
    ['f0', 'f1', 'b2', 'b1', 'b0']
    >>> [f"{v.doing[0]}{v.unit}" for v in visits(4, checkpoint_every=2)]
    ['f0', 'f1', 'f2', 'b3', 'b2', 'r0', 'b1', 'b0']

    Raises:
        PlanError: No unit, or groups of none.
    """
    if num_units < 1 or checkpoint_every < 1:
        raise PlanError(
            f"{num_units} units with a checkpoint every {checkpoint_every}",
            hint="both must be at least 1",
        )
    order = [Visit("forward", unit) for unit in range(num_units - 1)]
    starts = range(0, num_units, checkpoint_every)
    for start in reversed(starts):
        stop = min(start + checkpoint_every, num_units)
        if stop < num_units:
            order += [Visit("recompute", unit) for unit in range(start, stop - 1)]
        order += [Visit("backward", unit) for unit in range(stop - 1, start - 1, -1)]
    return tuple(order)
