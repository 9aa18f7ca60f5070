"""What each backend puts on the wire for a logical collective."""

from workbench.errors import PlanError


def sent_bytes(backend: str, op: str, payload_bytes: int, group_size: int) -> int:
    """Return bytes that one rank sends for one operation, mean over the group's ranks.

    Ring algorithms: an all-reduce passes every byte on twice less the own share, a
    gather or scatter once. gloo runs a reduce-scatter as an all-reduce, which doubles
    it (read off torch's profiler).

    Args:
        backend: "gloo" or "nccl".
        op: A logical operation.
        payload_bytes: The whole tensor: reduced, gathered (its gathered size),
            scattered (its size before), or sent.
        group_size: Ranks of the group.

    Raises:
        PlanError: A backend or operation that is not known.

    >>> sent_bytes("nccl", "reduce_scatter", 1000, 4)
    750
    >>> sent_bytes("gloo", "reduce_scatter", 1000, 4)
    1500
    """
    passes = ring_passes(backend, op)
    if op == "send":
        return payload_bytes if group_size > 1 else 0
    return payload_bytes * passes * (group_size - 1) // group_size


def ring_passes(backend: str, op: str) -> int:
    """Return how often each byte travels the whole ring: 2, 1, or 0 for a barrier.

    Raises:
        PlanError: A backend or operation that is not known.
    """
    if backend not in {"gloo", "nccl"}:
        raise PlanError(f"no backend is called {backend!r}", hint="gloo or nccl")
    if op == "all_reduce" or (op == "reduce_scatter" and backend == "gloo"):
        return 2
    if op in {"all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"}:
        return 1
    if op == "barrier":
        return 0
    raise PlanError(f"no collective is called {op!r}")
