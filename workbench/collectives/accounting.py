"""Counts what every call moves, and gives it out summed per step."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.collectives.call import Call


@dataclass(slots=True, kw_only=True)
class Traffic:
    """Sums over calls of one phase, operation and axis.

    Args:
        count: Calls.
        payload_bytes: Logical payload.
        sent_bytes: On the wire from this rank, by the backend's algorithm.
        seconds: From issue to completion, overlapping calls counted each.
        waited_s: What of it the rank was blocked.
    """

    count: int = 0
    payload_bytes: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0


#: (phase, op, axis)
Key = tuple[str, str, str]


@dataclass(kw_only=True)
class Accounting:
    """Sums the finished calls since the last flush, and over the rank's life.

    A receive is the other end of a send, so it is not counted again.
    """

    since_flush: dict[Key, Traffic] = field(default_factory=dict)
    total: dict[Key, Traffic] = field(default_factory=dict)
    _groups: dict[Key, str] = field(default_factory=dict)

    def issued(self, call: Call) -> None:
        """Count the bytes when they are handed over: a lost call was still asked for."""
        if call.op == "recv":
            return
        key = (call.phase, call.op, call.axis)
        self._groups[key] = call.group
        for table in (self.since_flush, self.total):
            traffic = table.setdefault(key, Traffic())
            traffic.count += 1
            traffic.payload_bytes += call.payload_bytes
            traffic.sent_bytes += call.sent_bytes

    def finished(self, call: Call) -> None:
        """Add the time of a call that is done."""
        if call.op == "recv":
            return
        for table in (self.since_flush, self.total):
            traffic = table.setdefault((call.phase, call.op, call.axis), Traffic())
            traffic.seconds += call.seconds
            traffic.waited_s += call.waited_s

    def flush(self, emit: Callable[[dict[str, Any]], None]) -> None:
        """Give out one payload per (phase, op, axis) since the last flush."""
        table, self.since_flush = self.since_flush, {}
        for (phase, op, axis), traffic in table.items():
            emit(
                {
                    "phase": phase,
                    "op": op,
                    "axis": axis,
                    "group": self._groups.get((phase, op, axis), ""),
                    "count": traffic.count,
                    "payload_bytes": traffic.payload_bytes,
                    "sent_bytes": traffic.sent_bytes,
                    "seconds": traffic.seconds,
                    "waited_s": traffic.waited_s,
                }
            )

    def snapshot(self) -> dict[Key, Traffic]:
        """Return a copy of the sums over the rank's life."""
        return {key: replace(traffic) for key, traffic in self.total.items()}
