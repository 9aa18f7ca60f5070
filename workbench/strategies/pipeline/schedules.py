"""What each rank of a pipeline does in a step, in order: a list, made without ranks.

`gpipe` runs all forwards, then all backwards (1811.06965). `1f1b` starts backwards as
soon as it can, which bounds what is kept (2006.09503). `interleaved` gives each rank
several chunks, which shortens the wait at both ends (2104.04473, section 2.2).
"""

from dataclasses import dataclass
from typing import Literal

from workbench.errors import LayoutError

#: Schedules that can run.
RUNNABLE = ("gpipe", "1f1b", "interleaved")


@dataclass(frozen=True, kw_only=True)
class Action:
    """One micro-batch through one chunk of a rank, forward or backward."""

    kind: Literal["forward", "backward"]
    chunk: int
    microbatch: int


def check_schedule(
    schedule: str, *, num_stages: int, num_microbatches: int, chunks: int
) -> None:
    """Refuse what no list of actions is known for.

    Raises:
        LayoutError: With a value that would work.
    """
    if schedule not in RUNNABLE:
        raise LayoutError(
            f"schedule {schedule!r} can be planned but not run yet",
            hint=f"one of {', '.join(RUNNABLE)}",
        )
    if schedule == "interleaved" and num_microbatches % num_stages:
        raise LayoutError(
            f"interleaved passes micro-batches in rounds of pp {num_stages}, "
            f"num_microbatches is {num_microbatches}",
            hint=f"num_microbatches={-(-num_microbatches // num_stages) * num_stages}",
        )
    if schedule != "interleaved" and chunks != 1:
        raise LayoutError(
            f"schedule {schedule!r} puts one chunk on each rank, chunks is {chunks}",
            hint='chunks=1, or schedule="interleaved"',
        )


def actions(
    schedule: str, *, stage: int, num_stages: int, num_microbatches: int, chunks: int
) -> tuple[Action, ...]:
    """Return what one rank does in a step.

    >>> [a.kind[0] + str(a.microbatch) for a in actions(
    ...     "1f1b", stage=0, num_stages=2, num_microbatches=3, chunks=1)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    total = num_microbatches * chunks
    forwards = [_nth("forward", n, num_stages, chunks) for n in range(total)]
    backwards = [_nth("backward", n, num_stages, chunks) for n in range(total)]
    ahead = {
        "gpipe": total,
        "1f1b": num_stages - stage - 1,
        "interleaved": 2 * (num_stages - stage - 1) + (chunks - 1) * num_stages,
    }[schedule]
    return _one_by_one(forwards, backwards, min(ahead, total))


def _one_by_one(
    forwards: list[Action], backwards: list[Action], ahead: int
) -> tuple[Action, ...]:
    """Some forwards ahead, then one forward and one backward in turn, then the rest."""
    order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return (*order, *backwards[len(forwards) - ahead :])


def _nth(
    kind: Literal["forward", "backward"], number: int, num_stages: int, chunks: int
) -> Action:
    """Return the n-th forward or backward of any rank.

    Rounds of `num_stages` micro-batches go through one chunk after the other; a
    backward takes the chunks from the last.
    """
    if chunks == 1:
        return Action(kind=kind, chunk=0, microbatch=number)
    rounds, place = divmod(number, num_stages * chunks)
    chunk, inside = divmod(place, num_stages)
    if kind == "backward":
        chunk = chunks - 1 - chunk
    return Action(kind=kind, chunk=chunk, microbatch=rounds * num_stages + inside)
