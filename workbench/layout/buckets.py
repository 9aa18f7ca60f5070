"""How data parallelism packs gradients into flat buckets: planner and strategy agree.

One all-reduce per bucket. The rule is pure arithmetic on sizes, so the plan counts the
very collectives that the strategy sends.
"""

from collections.abc import Sequence

from workbench.errors import LayoutError
from workbench.units import MIB

#: A bucket is closed once it holds this much (torch DDP's default of 25 MiB).
BUCKET_BYTES = 25 * MIB


def gradient_buckets(
    tensor_bytes: Sequence[int], *, bucket_bytes: int = BUCKET_BYTES
) -> tuple[tuple[int, ...], ...]:
    """Return, per bucket, the positions of its tensors.

    Tensors are taken in reverse order, since the backward makes gradients from the last
    to the first; a bucket closes once it holds `bucket_bytes` or more.

    Raises:
        LayoutError: A bucket size below one byte.

    >>> gradient_buckets([10, 20, 30, 40], bucket_bytes=50)
    ((3, 2), (1, 0))
    """
    if bucket_bytes < 1:
        raise LayoutError(f"a bucket of {bucket_bytes} bytes", hint="try 25 MiB")
    buckets: list[tuple[int, ...]] = []
    current: list[int] = []
    for position in reversed(range(len(tensor_bytes))):
        current.append(position)
        if sum(tensor_bytes[p] for p in current) >= bucket_bytes:
            buckets.append(tuple(current))
            current = []
    if current:
        buckets.append(tuple(current))
    return tuple(buckets)
