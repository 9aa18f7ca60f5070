"""WHAT HAPPENED, as records: events, bounded buffers, the run store, the live feed."""

from workbench.telemetry.events import Event, Kind

__all__ = ["Event", "Kind"]
