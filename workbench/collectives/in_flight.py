"""The table of calls that this rank has issued and that are not done."""

import time
from dataclasses import dataclass

from workbench.collectives.call import Call


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """One unfinished call: where a blocked rank is.

    Args:
        op, axis, group, seq, shape, dtype: As in `Call`.
        since_s: Seconds since it was issued.
    """

    op: str
    axis: str
    group: str
    seq: int
    shape: tuple[int, ...]
    dtype: str
    since_s: float


class InFlight:
    """Keeps the unfinished calls; read from another thread while the rank is blocked.

    Single dict operations are atomic in CPython, so no lock slows the step.
    """

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}

    def issued(self, call: Call) -> None:
        """Enter a call."""
        self._calls[id(call)] = call

    def finished(self, call: Call) -> None:
        """Strike a call out."""
        self._calls.pop(id(call), None)

    def clear(self) -> None:
        """Forget all calls: their group is gone, whoever still holds their handles."""
        self._calls.clear()

    def table(self) -> tuple[Waiting, ...]:
        """Return the unfinished calls, oldest first."""
        now_s = time.monotonic()
        calls = sorted(self._calls.copy().values(), key=lambda call: call.issued_s)
        return tuple(
            Waiting(
                op=call.op,
                axis=call.axis,
                group=call.group,
                seq=call.seq,
                shape=call.shape,
                dtype=call.dtype,
                since_s=now_s - call.issued_s,
            )
            for call in calls
        )
