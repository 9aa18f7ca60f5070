"""One record of what happened on a rank, with its cause."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

#: Raised by one when a field changes its meaning; readers refuse newer versions.
SCHEMA_VERSION = 1

Kind = Literal[
    "sample",  # memory, power, temperature, utilisation at one moment
    "collective",  # one collective or point-to-point message
    "phase",  # forward, backward, optimizer, input, idle: a span of a step
    "cell",  # a cell began or ended on this rank
    "state",  # a rank or session changed state
    "metric",  # loss, tokens per second, learning rate, ... of a step
    "checkpoint",  # a checkpoint was written or read
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One record of what happened on a rank.

    Args:
        kind: Which sort of record; decides what `payload` holds.
        rank: The rank it happened on; -1 for the session itself.
        run: The run it belongs to; "" outside any run.
        cause: What made it happen, e.g. "step:12", "cell:3".
        payload: Flat values, units in the names. Per kind:
            sample: heap_bytes (live now), heap_peak_bytes (most since the last
                sample), heap_base_bytes (before the model was built), rss_bytes,
                device_bytes, device_peak_bytes (None: not measured), phase (what the
                rank was in: "cell", or a part of training), and
                weights_bytes, gradients_bytes, optimizer_bytes once known.
            collective: op, axis, group, payload_bytes, sent_bytes, seconds, phase.
                High rates are summed per step before they become events: then
                `count` says how many.
            phase: name, seconds.
            metric: step, and any of loss, val_loss, tokens_per_s, lr, grad_norm,
                step_s.
            checkpoint: path, step, seconds, action ("save" or "load").
            cell: cell_id, status ("begin", "ok", "error", "interrupted").
            state: of ("rank" or "session"), state, reason.
        wall_s: Seconds since the epoch.
        monotonic_s: Seconds of the host's monotonic clock (shared by its ranks).
        schema: SCHEMA_VERSION of the writer.
    """

    kind: Kind
    rank: int
    run: str
    cause: str
    payload: dict[str, Any]
    wall_s: float = field(default_factory=time.time)
    monotonic_s: float = field(default_factory=time.monotonic)
    schema: int = SCHEMA_VERSION
