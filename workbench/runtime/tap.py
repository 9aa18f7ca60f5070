"""What a rank lets out by itself: its events, ten times a second, and half lines."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from workbench.protocol.orders import Telemetry
from workbench.runtime.channel import Channel
from workbench.telemetry import Event, EventBuffer, encode

_PERIOD_S = 0.1


class Tap:
    """Drains the event buffer and flushes text without a line's end."""

    def __init__(self, rank: int, channel: Channel) -> None:
        self._rank = rank
        self._channel = channel
        self._buffer = EventBuffer()

    def record(self, event: Event) -> None:
        """Keep an event of this rank; never blocks."""
        self._buffer.record(event)

    def start(self, first: Callable[[], None]) -> None:
        """Begin to drain, in a thread of its own, after some preparation in it."""
        self._first = first
        threading.Thread(target=self._work, name="workbench-tap", daemon=True).start()

    def drain(self) -> None:
        """Send what is there now."""
        events, dropped = self._buffer.drain()
        if events or dropped:
            self._channel.send(
                Telemetry(rank=self._rank, buffers=(encode(events, dropped),))
            )

    def _work(self) -> None:
        self._first()
        wait = threading.Event()
        while not wait.wait(_PERIOD_S):
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            self.drain()
