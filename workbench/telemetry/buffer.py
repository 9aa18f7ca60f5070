"""A bounded buffer between what happens on a rank and what is sent away."""

import threading
from collections import deque

from workbench.telemetry.events import Event


class EventBuffer:
    """Keeps events until they are drained; never blocks, counts what it drops.

    The oldest events go first when the buffer is full, so that the newest state of a
    rank is always known.

    Args:
        capacity: Events that are kept between two drains.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError(f"a buffer holds at least one event, not {capacity}")
        self._events: deque[Event] = deque(maxlen=capacity)
        self._capacity = capacity
        self._dropped = 0
        # Reentrant: a signal handler that records may interrupt a recording thread.
        self._lock = threading.RLock()

    def record(self, event: Event) -> None:
        """Keep an event; from any thread, in constant time."""
        with self._lock:
            if len(self._events) == self._capacity:
                self._dropped += 1
            self._events.append(event)

    def drain(self) -> tuple[list[Event], int]:
        """Take out everything: the events, oldest first, and how many were dropped."""
        with self._lock:
            events, dropped = list(self._events), self._dropped
            self._events.clear()
            self._dropped = 0
        return events, dropped
