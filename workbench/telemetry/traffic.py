"""Bytes per collective, added up exactly: per rank, op, axis and phase."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.telemetry.events import Event

#: (op, axis, phase), e.g. ("all_reduce", "dp", "step").
Key = tuple[str, str, str]


@dataclass(kw_only=True)
class RankTraffic:
    """What one rank did of one kind of collective.

    Args:
        times: Steps (or evaluations, ...) in which it happened: distinct causes.
        count, payload_bytes, sent_bytes, seconds, waited_s: Totals.
        cause: The newest.
    """

    times: int = 0
    count: int = 0
    payload_bytes: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0
    cause: str | None = None

    def add(self, payload: Mapping[str, Any], cause: str) -> None:
        """Add a collective, or a sum of `count` of them."""
        if cause != self.cause:
            self.cause = cause
            self.times += 1
        self.count += payload.get("count", 1)
        self.payload_bytes += payload.get("payload_bytes") or 0
        self.sent_bytes += payload.get("sent_bytes") or 0
        self.seconds += payload.get("seconds") or 0.0
        self.waited_s += payload.get("waited_s") or 0.0


class Traffic:
    """Totals of all ranks."""

    def __init__(self) -> None:
        self.by_key: dict[Key, dict[int, RankTraffic]] = {}

    def add(self, event: Event) -> None:
        """Add one `collective` event."""
        payload = event.payload
        key = (
            str(payload.get("op", "")),
            str(payload.get("axis", "")),
            str(payload.get("phase", "step")),
        )
        ranks = self.by_key.setdefault(key, {})
        ranks.setdefault(event.rank, RankTraffic()).add(payload, event.cause)

    def rows(self) -> list[dict[str, Any]]:
        """Return one JSON row per key: figures of one time (step), over the ranks."""
        return [_row(key, ranks) for key, ranks in sorted(self.by_key.items())]


def per_time(total: float, times: int) -> float:
    """Divide a total by how often it happened; exact (an int) where it divides.

    >>> per_time(12, 4)
    3
    """
    whole, rest = divmod(total, times)
    return int(whole) if rest == 0 else total / times


def _row(key: Key, ranks: dict[int, RankTraffic]) -> dict[str, Any]:
    op, axis, phase = key
    sent = [per_time(rank.sent_bytes, rank.times) for rank in ranks.values()]
    top = max(ranks.values(), key=lambda rank: per_time(rank.sent_bytes, rank.times))
    return {
        "op": op,
        "axis": axis,
        "phase": phase,
        "num_ranks": len(ranks),
        "times": max(rank.times for rank in ranks.values()),
        "count": per_time(top.count, top.times),
        "payload_bytes": per_time(top.payload_bytes, top.times),
        "sent_bytes": max(sent),
        "sent_min_bytes": min(sent),
        "seconds": top.seconds / top.times,
        **_waiting(ranks),
    }


def _waiting(ranks: dict[int, RankTraffic]) -> dict[str, Any]:
    """Say who waits longest per step, and who least: the one that is waited for."""
    waited = {rank: traffic.waited_s / traffic.times for rank, traffic in ranks.items()}
    waiting = max(waited, key=lambda rank: waited[rank])
    late = min(waited, key=lambda rank: waited[rank])
    return {
        "waiting_rank": waiting,
        "waited_s": waited[waiting],
        "late_rank": late,
        "late_waited_s": waited[late],
    }
