"""Events as bytes: a header line that is cheap to read, then one JSON array.

`encode(*buffer.drain())` is what a worker sends; `decode` is its inverse.
"""

import json
from collections.abc import Iterable
from typing import Any

from workbench.errors import StoreError
from workbench.telemetry.events import SCHEMA_VERSION, Event


def encode(events: Iterable[Event], dropped: int = 0) -> bytes:
    """Pack events, and how many were dropped before them, into one batch.

    Payload values must be JSON (None, bool, int, float, str, lists, dicts of these).
    """
    rows = [_row(event) for event in events]
    header = {"schema": SCHEMA_VERSION, "count": len(rows), "dropped": dropped}
    return b"\n".join(
        json.dumps(part, separators=(",", ":")).encode() for part in (header, rows)
    )


def decode(batch: bytes) -> tuple[list[Event], int]:
    """Unpack a batch into its events and the number dropped before them.

    Raises:
        StoreError: If a newer version of Workbench wrote the batch, or if it is none.
    """
    header, _, body = batch.partition(b"\n")
    _, dropped = peek(header)
    try:
        return [_event(row) for row in json.loads(body)], dropped
    except (ValueError, TypeError) as error:
        raise StoreError(f"a batch of events cannot be read: {error}") from error


def peek(batch: bytes) -> tuple[int, int]:
    """Return (events inside, events dropped before) without unpacking.

    Raises:
        StoreError: As `decode`.
    """
    try:
        header = json.loads(batch.partition(b"\n")[0])
        schema, count, dropped = header["schema"], header["count"], header["dropped"]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"not a batch of events: {batch[:40]!r}") from error
    if schema > SCHEMA_VERSION:
        raise StoreError(
            f"events of schema {schema}, this Workbench reads up to {SCHEMA_VERSION}",
            hint="use the same version of workbench on all machines",
        )
    return count, dropped


def _row(event: Event) -> list[Any]:
    return [
        event.kind,
        event.rank,
        event.run,
        event.cause,
        event.payload,
        event.wall_s,
        event.monotonic_s,
        event.schema,
    ]


def _event(row: list[Any]) -> Event:
    kind, rank, run, cause, payload, wall_s, monotonic_s, schema = row
    return Event(
        kind=kind,
        rank=rank,
        run=run,
        cause=cause,
        payload=payload,
        wall_s=wall_s,
        monotonic_s=monotonic_s,
        schema=schema,
    )
