"""WHAT HAPPENED, as records: events, bounded buffers, the run store, the live feed.

A rank records into an `EventBuffer`; its worker drains it and sends `encode(...)`; the
`Recorder` beside the scheduler writes to the `RunStore` and publishes to the
`FeedServer`; viewers read with a `FeedClient`, or the store when a run is over.
"""

from workbench.telemetry.buffer import EventBuffer
from workbench.telemetry.codec import decode, encode
from workbench.telemetry.events import Event, Kind
from workbench.telemetry.store import Run, RunStore

__all__ = ["Event", "EventBuffer", "Kind", "Run", "RunStore", "decode", "encode"]
