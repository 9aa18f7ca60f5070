"""Figures of a run as the planner predicts them, from what was recorded."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from workbench.telemetry.picture import SERIES, Picture
from workbench.telemetry.store import RunStore
from workbench.telemetry.traffic import Key, RankTraffic, per_time


@dataclass(frozen=True, kw_only=True)
class MeasuredMemory:
    """Measured bytes of one rank.

    Args:
        rank: Its number.
        by_category: "weights", "gradients", "optimizer", where they were reported.
        peak_bytes: Highest use seen; None if it was not measured. On a CPU: live heap
            bytes less those before the model was built.
    """

    rank: int
    by_category: Mapping[str, int]
    peak_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class MeasuredComm:
    """Measured traffic of one rank, per step (or per evaluation, checkpoint, set-up).

    Figures are whole numbers wherever every step did the same.

    Args:
        rank: The rank that counted it.
        op, axis, phase: As in a plan.
        times: How many steps (evaluations, ...) it was counted in.
        count: Operations per step.
        payload_bytes, sent_bytes: Per step, as defined for a plan.
        seconds: Per step, from call to end.
    """

    rank: int
    op: str
    axis: str
    phase: str
    times: int
    count: float
    payload_bytes: float
    sent_bytes: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run did, in the planner's terms.

    Args:
        run: Its id.
        num_steps: Steps of training that reported metrics.
        memory: One entry per rank that was heard of.
        comm: One entry per rank and kind of collective.
        median_step_s: None where steps did not report their time.
        losses: First and last training loss; None without any.
        dropped: Events lost on the way: above 0, sums may be too small.
    """

    run: str
    num_steps: int
    memory: tuple[MeasuredMemory, ...]
    comm: tuple[MeasuredComm, ...]
    median_step_s: float | None
    losses: tuple[float, float] | None
    dropped: int

    @classmethod
    def from_store(cls, store: RunStore, run: str | None = None) -> Self:
        """Read a run, the newest by default.

        Raises:
            StoreError: If there is no such run.
        """
        meta = store.run(run)
        picture = replay(store, meta.id)
        steps = _points(store, meta.id, "step_s")
        losses = _points(store, meta.id, "loss")
        return cls(
            run=meta.id,
            num_steps=max(len(steps), len(losses)),
            memory=_memory(picture),
            comm=tuple(_comm(picture)),
            median_step_s=statistics.median(steps.values()) if steps else None,
            losses=(losses[min(losses)], losses[max(losses)]) if losses else None,
            dropped=meta.dropped,
        )


def replay(store: RunStore, run: str) -> Picture:
    """Fold a stored run into the picture that its viewers saw last.

    Raises:
        StoreError: If there is no such run.
    """
    meta = store.run(run)
    picture = Picture(started_s=meta.started_s)
    for event in store.events(run):
        picture.fold(event)
    picture.changes()
    picture.add_dropped(meta.dropped)
    return picture


def _points(store: RunStore, run: str, name: str) -> dict[int, float]:
    """Return a metric of every step, unthinned; a step done again counts once."""
    assert name in SERIES
    points: dict[int, float] = {}
    for event in store.events(run, kind="metric"):
        step, value = event.payload.get("step"), event.payload.get(name)
        if step is not None and value is not None:
            points[step] = value
    return points


def _memory(picture: Picture) -> tuple[MeasuredMemory, ...]:
    return tuple(
        MeasuredMemory(
            rank=rank, by_category=dict(state.categories), peak_bytes=state.peak_bytes
        )
        for rank, state in sorted(picture.ranks.items())
    )


def _comm(picture: Picture) -> list[MeasuredComm]:
    return [
        _comm_of_rank(key, rank, traffic)
        for key, ranks in sorted(picture.traffic.by_key.items())
        for rank, traffic in sorted(ranks.items())
    ]


def _comm_of_rank(key: Key, rank: int, traffic: RankTraffic) -> MeasuredComm:
    op, axis, phase = key
    return MeasuredComm(
        rank=rank,
        op=op,
        axis=axis,
        phase=phase,
        times=traffic.times,
        count=per_time(traffic.count, traffic.times),
        payload_bytes=per_time(traffic.payload_bytes, traffic.times),
        sent_bytes=per_time(traffic.sent_bytes, traffic.times),
        seconds=traffic.seconds / traffic.times,
    )
