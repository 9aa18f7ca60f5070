"""A rank's membership of the group, from one generation to the next."""

import re
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed import distributed_c10d

from workbench.collectives.call import Call
from workbench.collectives.group import RankGroup
from workbench.collectives.guard import Guard
from workbench.collectives.ranks import Ranks
from workbench.layout import Layout
from workbench.protocol.messages import Waiting
from workbench.protocol.orders import FormGroup
from workbench.telemetry import Event

#: What the backends say when the other end is gone or was cut.
_CONNECTION_ENDED = re.compile(
    r"Connection (closed|reset) by peer|Connection refused|Broken pipe|Socket closed"
    r"|Application timeout caused pair closure|aborted|NCCL communicator was aborted"
)


#: Point-to-point calls. They wait in one piece, out of a signal's reach.
MESSAGES = frozenset(("send", "recv", "recv_anysource"))


class Issued:
    """Counts the calls of each group and remembers the newest: an observer."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"0": 0}
        self.newest: Call | None = None

    def clear(self) -> None:
        """Count from nothing: ranks that join now have not seen what was before."""
        self.counts = {"0": 0}
        self.newest = None

    def issued(self, call: Call) -> None:
        """Count a call."""
        self.counts[call.group] = self.counts.get(call.group, 0) + 1
        self.newest = call

    def finished(self, call: Call) -> None:
        """Keep the newest call: it is asked for when it failed."""


class Membership:
    """The group that this rank is in."""

    def __init__(
        self,
        rank: int,
        record: Callable[[Event], None],
        find_line: Callable[[Any], str],
    ) -> None:
        self.rank = rank
        self._record = record
        self._issued = Issued()
        self.guard = Guard(find_line)
        self.group: RankGroup | None = None

    def form(self, order: FormGroup) -> RankGroup:
        """Join a generation, with the meshes of all layouts, and check it with a sum.

        A rank that was in the group before makes the same groups again under the same
        names, so that nets and meshes live on; a fresh one makes them in that order.

        Raises:
            RuntimeError: The other ranks did not come, or the sum is wrong.
        """
        # A fresh rank compares nothing yet, so nobody may while they form.
        self.guard.watch(on=False)
        group = self.group
        if group is not None and group.world_size == order.world_size:
            group.rejoin(generation=order.generation)
        else:
            group = self._join_afresh(order)
        for text in order.layouts:
            group.ranks(Layout.from_toml(text))
        self._issued.clear()
        self._check(group, order.world_size)
        # Our own sum is no traffic of the person's.
        group.accounting.flush(_forget)
        return group

    def _join_afresh(self, order: FormGroup) -> RankGroup:
        if self.group is not None:
            self.group.close()
        self.group = RankGroup.form(
            store_address=(order.store_host, order.store_port),
            rank=self.rank,
            world_size=order.world_size,
            backend="nccl" if order.backend == "nccl" else "gloo",
            generation=order.generation,
            interface=order.interface or None,
            record=self._record,
            observers=(self._issued,),
            guard=self.guard,
        )
        return self.group

    def _check(self, group: RankGroup, world_size: int) -> None:
        total = torch.full((1,), float(self.rank), device=group.device)
        torch.distributed.all_reduce(total)
        expected = world_size * (world_size - 1) / 2
        if total.item() != expected:
            raise RuntimeError(f"the sum of ranks is {total.item()}, not {expected}")

    def ranks(self, layout: Layout, run: str) -> Ranks:
        """Return this rank's view for a layout; all ranks must ask alike."""
        assert self.group is not None
        return self.group.ranks(layout, run=run)

    def cut(self) -> None:
        """Free this rank from any blocked call; from any thread."""
        if self.group is not None:
            self.group.cut()

    def waiting(self) -> tuple[Waiting, ...]:
        """Return the calls that are open; from any thread."""
        if self.group is None:
            return ()
        return tuple(_describe(call) for call in self.group.in_flight())

    def waiting_for(
        self, gone: tuple[int, ...], longer_s: float
    ) -> tuple[Waiting, ...]:
        """Return the calls that one of `gone` would have to join, open for longer.

        A message may be from any rank of its group: it waits in vain only when every
        other rank of the group is gone.
        """
        if self.group is None or not gone:
            return ()
        return tuple(
            _describe(call)
            for call in self.group.in_flight()
            if call.since_s >= longer_s and self._needs(call, frozenset(gone))
        )

    def _needs(self, call: Any, gone: frozenset[int]) -> bool:
        members = frozenset(_ranks_of(call.group)) - {self.rank}
        if call.op in MESSAGES:
            return members <= gone
        return bool(members & gone)

    def issued(self) -> dict[str, int]:
        """Return how many calls each group has seen on this rank."""
        return dict(self._issued.counts)

    def broken_call(self, error: BaseException | None) -> Waiting | None:
        """Return the call that failed because a peer is gone, if that is what failed."""
        newest = self._issued.newest
        if error is None or newest is None or not _CONNECTION_ENDED.search(str(error)):
            return None
        return Waiting(
            op=newest.op,
            group=_group_name(newest.group, newest.axis),
            sequence=newest.seq,
            shape=_shape_text(newest),
            since_s=time.monotonic() - newest.issued_s,
        )


def _describe(call: Any) -> Waiting:
    return Waiting(
        op=call.op,
        group=_group_name(call.group, call.axis),
        sequence=call.seq,
        shape=_shape_text(call),
        since_s=call.since_s,
    )


def _ranks_of(group: str) -> list[int]:
    """Return the ranks of a group by its name in torch."""
    found = _resolve_process_group(distributed_c10d.GroupName(group))
    return list(distributed_c10d.get_process_group_ranks(found))


def _group_name(group: str, axis: str) -> str:
    return f"{axis} (group {group})"


def _shape_text(call: Any) -> str:
    return f"{tuple(call.shape)} {call.dtype}"


def _forget(payload: dict[str, Any]) -> None:
    """Take what nobody needs to know."""
    del payload
