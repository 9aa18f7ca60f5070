"""What a cached embedding table costs (S17): no torch here."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.errors import PlanError
from workbench.planner.offload.link import Link


@dataclass(frozen=True, kw_only=True)
class CacheCost:
    """A table whose most frequent rows stay on the device.

    Args:
        hit_rate: Share of lookups whose row is there, once the cache has settled.
        rows_moved: Per batch, both directions together.
        transfer_s: Per batch, nothing hidden.
        device_bytes: Of the cached rows.
        host_bytes: Of the whole table.
    """

    hit_rate: float
    rows_moved: float
    transfer_s: float
    device_bytes: int
    host_bytes: int


def cache_cost(
    frequencies: Sequence[float],
    *,
    num_cached: int,
    row_bytes: int,
    ids_per_batch: int,
    outward: Link,
    inward: Link,
) -> CacheCost:
    """Return what the `dataset` policy costs per batch, ids drawn independently.

    The rarest leave first, so the cache keeps the C most frequent rows, but for the few
    places that rarer ones pass through.

    Args:
        frequencies: How often each id occurs (any scale), most frequent first.
        num_cached: Rows on the device, C.
        row_bytes: Of a row with all that moves along.
        ids_per_batch: Lookups per batch.
        outward: The link for rows that leave.
        inward: The link for rows that come.

    >>> cost = cache_cost(
    ...     [8, 4, 2, 1, 1], num_cached=5, row_bytes=64, ids_per_batch=4,
    ...     outward=Link(bytes_per_s=1e9), inward=Link(bytes_per_s=1e9),
    ... )
    >>> cost.hit_rate, cost.rows_moved
    (1.0, 0.0)

    Raises:
        PlanError: A cache of no rows.
    """
    if num_cached < 1:
        raise PlanError(f"a cache of {num_cached} rows", hint="at least 1")
    total = float(sum(frequencies))
    shares = [frequency / total for frequency in frequencies]
    present = [1.0 - (1.0 - share) ** ids_per_batch for share in shares]
    rare = sum(present[num_cached:])
    hits = sum(shares[:num_cached])
    return CacheCost(
        hit_rate=hits,
        rows_moved=2.0 * rare,
        transfer_s=inward.seconds(rare * row_bytes) + outward.seconds(rare * row_bytes)
        if rare
        else 0.0,
        device_bytes=num_cached * row_bytes,
        host_bytes=len(frequencies) * row_bytes,
    )
