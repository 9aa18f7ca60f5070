"""What each backend puts on the wire for a logical collective (planner.md 3.6)."""

from fractions import Fraction

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
    return int(payload_bytes * ring_share(backend, op, group_size))


def ring_share(backend: str, op: str, group_size: int) -> Fraction:
    """Return sent bytes over payload bytes, exactly.

    Raises:
        PlanError: A backend or operation that is not known.
    """
    if backend not in {"gloo", "nccl"}:
        raise PlanError(f"no backend is called {backend!r}", hint="gloo or nccl")
    others = Fraction(group_size - 1, group_size)
    if op == "all_reduce" or (op == "reduce_scatter" and backend == "gloo"):
        return 2 * others
    if op in {"all_gather", "reduce_scatter", "all_to_all", "broadcast"}:
        return others
    if op in {"send", "barrier"}:
        return Fraction(op == "send" and group_size > 1)
    raise PlanError(f"no collective is called {op!r}")
