"""What each data-moving method of torch's ProcessGroup does, and its payload.

The keys are compared with `dir(torch.distributed.ProcessGroup)` by a test, so that an
upgrade of torch cannot add a method that goes unseen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The bytes of one call.

    Args:
        first: The tensor that names shape and dtype; None for a barrier.
        payload_bytes: The logical payload (see `Call`).
        kept_bytes: The part of it that this rank keeps for itself, where the call says
            so (uneven all-to-all); None where it is an even share.
    """

    first: torch.Tensor | None
    payload_bytes: int
    kept_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's logical operation and how to read its payload.

    Args:
        op: The logical operation.
        payload: Takes positional arguments, this rank and the group's size.
    """

    op: str
    payload: Callable[[Sequence[Any], int, int], Payload]


def flat(value: Any) -> Iterator[torch.Tensor]:
    """Give the tensors of a tensor or of nested sequences of tensors."""
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for part in value:
            yield from flat(part)


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _argument(position: int) -> Callable[[Sequence[Any], int, int], Payload]:
    """Read the payload from the tensors of one argument."""

    def read(args: Sequence[Any], rank: int, size: int) -> Payload:
        del rank, size
        tensors = list(flat(args[position]))
        return Payload(
            first=tensors[0] if tensors else None, payload_bytes=_bytes(tensors)
        )

    return read


def _times_ranks(position: int) -> Callable[[Sequence[Any], int, int], Payload]:
    """Read one rank's part, which a root gathers from or scatters to every rank."""

    def read(args: Sequence[Any], rank: int, size: int) -> Payload:
        part = _argument(position)(args, rank, size)
        return Payload(first=part.first, payload_bytes=part.payload_bytes * size)

    return read


def _exchange_list(args: Sequence[Any], rank: int, size: int) -> Payload:
    """all_to_all of lists: one tensor per peer."""
    del size
    tensors = list(flat(args[1]))
    return Payload(
        first=tensors[0],
        payload_bytes=_bytes(tensors),
        kept_bytes=_bytes([tensors[rank]]),
    )


def _exchange_single(args: Sequence[Any], rank: int, size: int) -> Payload:
    """all_to_all of one tensor, cut along dim 0 evenly or by given sizes."""
    tensor = next(flat(args[1]))
    total = _bytes([tensor])
    splits = args[3] if len(args) > 3 else ()
    if not splits:
        return Payload(first=tensor, payload_bytes=total, kept_bytes=total // size)
    kept = total * int(splits[rank]) // max(1, sum(int(split) for split in splits))
    return Payload(first=tensor, payload_bytes=total, kept_bytes=kept)


def _nothing(args: Sequence[Any], rank: int, size: int) -> Payload:
    del args, rank, size
    return Payload(first=None, payload_bytes=0)


_REDUCE = Method(op="all_reduce", payload=_argument(0))
_GATHER = Method(op="all_gather", payload=_argument(0))
_SCATTER = Method(op="reduce_scatter", payload=_argument(1))
_EXCHANGE = Method(op="all_to_all", payload=_exchange_single)
_RECV = Method(op="recv", payload=_argument(0))

METHODS: Mapping[str, Method] = {
    "allreduce": _REDUCE,
    "allreduce_coalesced": _REDUCE,
    "allgather": _GATHER,
    "allgather_coalesced": _GATHER,
    "_allgather_base": _GATHER,
    "all_gather_single": _GATHER,
    "all_gather_single_coalesced": _GATHER,
    "allgather_into_tensor_coalesced": _GATHER,
    "reduce_scatter": _SCATTER,
    "_reduce_scatter_base": _SCATTER,
    "reduce_scatter_single": _SCATTER,
    "reduce_scatter_single_coalesced": _SCATTER,
    "reduce_scatter_tensor_coalesced": _SCATTER,
    "alltoall": Method(op="all_to_all", payload=_exchange_list),
    "alltoall_base": _EXCHANGE,
    "all_to_all_single": _EXCHANGE,
    "broadcast": Method(op="broadcast", payload=_argument(0)),
    "reduce": Method(op="reduce", payload=_argument(0)),
    "gather": Method(op="gather", payload=_times_ranks(1)),
    "scatter": Method(op="scatter", payload=_times_ranks(0)),
    "send": Method(op="send", payload=_argument(0)),
    "recv": _RECV,
    "recv_anysource": _RECV,
    "barrier": Method(op="barrier", payload=_nothing),
}
