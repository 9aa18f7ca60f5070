"""One observed collective or message, and what may watch it."""

import time
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, kw_only=True)
class Call:
    """One collective or message of this rank, from issue to completion.

    Args:
        op: The logical operation ("all_reduce", ..., "send", "recv").
        axis: The axis whose group carries it, "world" for the group of all ranks.
        group: The group's name in torch.
        seq: Counts the calls of this group on this rank, from 1.
        shape: Shape of the first tensor.
        dtype: Its dtype, e.g. "float32".
        payload_bytes: Logical payload: the whole tensor that is reduced, gathered
            (its gathered size), scattered (its size before), or sent.
        sent_bytes: What this rank puts on the wire, by the backend's algorithm.
        phase: The part of a run it belongs to.
        issued_s: Monotonic time of the issue.
        waited_s: Seconds that the caller was blocked for it so far.
        seconds: From issue to completion as seen by this rank; set when it is done.
    """

    op: str
    axis: str
    group: str
    seq: int
    shape: tuple[int, ...]
    dtype: str
    payload_bytes: int
    sent_bytes: int
    phase: str
    issued_s: float = field(default_factory=time.monotonic)
    waited_s: float = 0.0
    seconds: float = 0.0

    def close(self) -> None:
        """Note that the call is done now."""
        self.seconds = time.monotonic() - self.issued_s


class Observer(Protocol):
    """Watches the calls of all groups of a rank; must be cheap and never raise."""

    def issued(self, call: Call) -> None:
        """Take note of a call that is about to be handed to the backend."""

    def finished(self, call: Call) -> None:
        """Take note of a call that is done, or that nobody will wait for any more."""
