"""Who waits for whom in a cell that makes no progress."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.protocol.messages import Waiting
from workbench.protocol.orders import RankAnswer
from workbench.protocol.spans import label
from workbench.units import seconds_text

#: A cell that prints nothing and ends nowhere for so long is looked at.
STALL_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where one rank is.

    Args:
        rank: The rank.
        waiting: The calls that it is inside.
        line: The cell's line that it runs, "" where that is unknown.
    """

    rank: int
    waiting: tuple[Waiting, ...]
    line: str


def positions_in(answers: Sequence[RankAnswer]) -> list[Position]:
    """Return what ranks said when they were asked where they are."""
    return [
        Position(
            rank=answer.rank,
            waiting=tuple(Waiting(**call) for call in answer.result["waiting"]),
            line=answer.result["line"],
        )
        for answer in answers
        if not answer.error
    ]


def explain_stall(positions: Sequence[Position], quiet_s: float) -> str:
    """Return who waits in which call and who has not come, or "" where nobody waits.

    A cell in which every rank computes is busy, not stalled.
    """
    stuck = [p for p in positions if any(c.since_s >= quiet_s / 2 for c in p.waiting)]
    if not stuck:
        return ""
    lines = [f"no progress for {seconds_text(quiet_s)}:"]
    groups: dict[str, list[int]] = {}
    for position in positions:
        groups.setdefault(_text(position), []).append(position.rank)
    lines += [f"  {label(ranks)}: {text}" for text, ranks in groups.items()]
    return "\n".join(lines)


def _text(position: Position) -> str:
    at = f" at {position.line}" if position.line else ""
    if not position.waiting:
        return f"runs{at}" if at else "is not in the cell any more"
    call = position.waiting[0]
    return f"waits in {call.op} of {call.group}, call {call.sequence}, {call.shape}{at}"
