"""What code on a rank knows about itself and the others."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.distributed.device_mesh import DeviceMesh

from workbench.collectives.accounting import Accounting
from workbench.layout import Layout
from workbench.telemetry import Event, Kind


class GroupView(Protocol):
    """What strategies and training use of the group of all ranks."""

    accounting: Accounting

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Attribute the calls inside to a phase of the run."""

    def flush(self, *, run: str, cause: str) -> None:
        """Emit what was counted since the last flush."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """One rank's view of the group: handed to strategies and training.

    Args:
        rank: This rank.
        world_size: Ranks of the default group.
        device: Where this rank computes.
        mesh: The layout's mesh, one mesh dim per axis with a degree above 1 (a single
            dim "dp" of size 1 where all are 1).
        layout: The layout that the mesh was made from.
        run: The current run's id; "" outside any run.
        record: Takes an event; never blocks, drops and counts when its buffer is full.
        group: The group that all these ranks form.
    """

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    layout: Layout
    run: str
    record: Callable[[Event], None]
    group: GroupView

    def emit(self, kind: Kind, *, cause: str, **payload: Any) -> None:
        """Record an event of this rank in the current run."""
        self.record(
            Event(kind=kind, rank=self.rank, run=self.run, cause=cause, payload=payload)
        )
