"""What a monitor draws of one run, folded from its events: small, bounded, JSON.

The recorder folds events and publishes changes; a viewer applies them to its own
picture. A snapshot is the change from nothing, so both sides share one way in, and a
stored run replayed through `fold` gives the picture that was seen live.
"""

from dataclasses import dataclass, field
from typing import Any

from workbench.telemetry.events import Event
from workbench.telemetry.traffic import Traffic

#: Metrics of a step that are drawn or shown; others stay in the store.
SERIES = ("loss", "val_loss", "tokens_per_s", "step_s", "lr", "grad_norm")

_CATEGORIES = ("weights_bytes", "gradients_bytes", "optimizer_bytes")


@dataclass(kw_only=True)
class Series:
    """Points with strictly rising x. Beyond `limit` every second one is given up.

    A point at or before the last x replaces what came after it: training that resumed
    from an earlier step is drawn as it went on.
    """

    limit: int = 2000
    x: list[float] = field(default_factory=list)
    y: list[Any] = field(default_factory=list)

    def add(self, x: float, y: Any) -> None:
        """Add one point."""
        while self.x and self.x[-1] >= x:
            self.x.pop()
            self.y.pop()
        self.x.append(x)
        self.y.append(y)
        if len(self.x) > self.limit:
            # From the end, so that the newest point always stays.
            self.x = self.x[::-2][::-1]
            self.y = self.y[::-2][::-1]


@dataclass(kw_only=True)
class RankState:
    """The newest known figures of one rank; None: not measured.

    Args:
        rank: Its number.
        now_bytes, peak_bytes: Memory in use now, and the most so far: of the device
            where there is one, else live heap bytes less `base_bytes`.
        base_bytes: Live heap bytes before the model was built, as reported; else those
            of the run's first sample.
        trained: Whether a trainer reported its base: then only its phases count for
            the peak.
        categories: Bytes of weights, gradients, optimizer, as measured.
        state: The newest state event's word.
        wall_s: Time of its newest event.
    """

    rank: int
    now_bytes: int | None = None
    peak_bytes: int | None = None
    base_bytes: int | None = None
    trained: bool = False
    categories: dict[str, int] = field(default_factory=dict)
    state: str = ""
    wall_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return a copy that later events do not change."""
        return {**vars(self), "categories": dict(self.categories)}

    def take_memory(self, sample: dict[str, Any]) -> tuple[int | None, int | None]:
        """Return the (now, peak) bytes of a sample; None: not measured.

        Of the device where there is one. Else of the live heap, less what it held
        before the model: resident-set differences lie, allocators keep freed pages.
        """
        self._take_base(sample)
        if sample.get("device_bytes") is not None:
            return sample["device_bytes"], sample.get("device_peak_bytes")
        if sample.get("heap_bytes") is None:
            return None, None
        base = self.base_bytes or 0
        peak = sample.get("heap_peak_bytes")
        now = max(sample["heap_bytes"] - base, 0)
        if self.trained and sample.get("phase") == "cell":
            # What other cells do with the heap is no peak of the training.
            return now, self.peak_bytes or 0
        return now, None if peak is None else max(peak - base, 0)

    def _take_base(self, sample: dict[str, Any]) -> None:
        reported = sample.get("heap_base_bytes")
        if reported is not None and reported != self.base_bytes:
            # What was seen before the model was built is no peak of the model.
            self.base_bytes, self.peak_bytes = reported, None
            self.trained = True
        elif self.base_bytes is None:
            self.base_bytes = sample.get("heap_bytes")


class Picture:
    """The folded state of one run.

    Args:
        started_s: When the run began, seconds since the epoch; memory is drawn over
            seconds since then.
        tick_s: Finest spacing of the memory rows.
    """

    def __init__(self, *, started_s: float, tick_s: float = 0.1) -> None:
        self.started_s = started_s
        self.series: dict[str, Series] = {}
        self.memory = Series(limit=600)
        self.ranks: dict[int, RankState] = {}
        self.comm: list[dict[str, Any]] = []
        self.phases: dict[str, float] = {}
        self.checkpoints: int = 0
        self.dropped = 0
        self._tick_s = tick_s
        self._traffic = Traffic()
        self._owner: dict[str, int] = {}
        self._row: dict[int, int] = {}
        self._dirty = _Dirty()

    def fold(self, event: Event) -> None:
        """Take in one event; those of other kinds only renew the rank's heartbeat."""
        if event.rank >= 0:
            self._rank(event.rank).wall_s = event.wall_s
            self._dirty.ranks.add(event.rank)
        match event.kind:
            case "metric":
                self._fold_metric(event)
            case "sample":
                self._fold_sample(event)
            case "collective":
                self._traffic.add(event)
                self._dirty.comm = True
            case "phase":
                self._fold_phase(event)
            case "state" if event.rank >= 0:
                self._rank(event.rank).state = str(event.payload.get("state", ""))
            case "checkpoint":
                self.checkpoints += 1

    def add_dropped(self, count: int) -> None:
        """Count events that were lost on the way."""
        self.dropped += count

    @property
    def traffic(self) -> Traffic:
        """Exact traffic per rank; complete only where events were folded."""
        return self._traffic

    def changes(self, *, full: bool = True) -> dict[str, Any]:
        """Return what happened since the last call, as JSON, for `apply`.

        Args:
            full: Whether figures of ranks and collectives, which are words and bars,
                are told now; points always are.
        """
        dirty, self._dirty = self._dirty, _Dirty()
        if not full:
            self._dirty.ranks, self._dirty.comm = dirty.ranks, dirty.comm
            dirty.ranks, dirty.comm = set(), False
        if dirty.comm:
            self.comm = self._traffic.rows()
        return {
            "series": dirty.points,
            "memory": list(dirty.rows.values()),
            "ranks": [self.ranks[rank].as_json() for rank in sorted(dirty.ranks)],
            "comm": self.comm if dirty.comm else None,
            **self._scalars(),
        }

    def snapshot(self) -> dict[str, Any]:
        """Return everything, as JSON, for `apply` on a new picture."""
        comm = self._traffic.rows() or self.comm
        return {
            "series": {n: [list(s.x), list(s.y)] for n, s in self.series.items()},
            "memory": [
                [t, *row] for t, row in zip(self.memory.x, self.memory.y, strict=True)
            ],
            "ranks": [self.ranks[rank].as_json() for rank in sorted(self.ranks)],
            "comm": comm,
            **self._scalars(),
        }

    def apply(self, changes: dict[str, Any]) -> None:
        """Take in what `changes` or `snapshot` of another picture returned."""
        for name, (x, y) in changes["series"].items():
            series = self.series.setdefault(name, Series())
            for point in zip(x, y, strict=True):
                series.add(*point)
        for t, *row in changes["memory"]:
            self.memory.add(t, row)
        for state in changes["ranks"]:
            self.ranks[state["rank"]] = RankState(**state)
        if changes["comm"] is not None:
            self.comm = changes["comm"]
        self.phases = changes["phases"]
        self.checkpoints = changes["checkpoints"]
        self.dropped = changes["dropped"]

    def _scalars(self) -> dict[str, Any]:
        return {
            "phases": dict(self.phases),
            "checkpoints": self.checkpoints,
            "dropped": self.dropped,
        }

    def _rank(self, rank: int) -> RankState:
        return self.ranks.setdefault(rank, RankState(rank=rank))

    def _fold_metric(self, event: Event) -> None:
        step = event.payload.get("step")
        if step is None:
            return
        for name in SERIES:
            value = event.payload.get(name)
            # Of a metric that all ranks report, the first one's points are drawn.
            owner = (
                self._owner.setdefault(name, event.rank) if value is not None else -2
            )
            if value is None or owner != event.rank:
                continue
            self.series.setdefault(name, Series()).add(step, value)
            x, y = self._dirty.points.setdefault(name, [[], []])
            x.append(step)
            y.append(value)

    def _fold_phase(self, event: Event) -> None:
        name = str(event.payload.get("name", ""))
        seconds = event.payload.get("seconds") or 0.0
        self.phases[name] = self.phases.get(name, 0.0) + seconds

    def _fold_sample(self, event: Event) -> None:
        state = self._rank(event.rank)
        for category in _CATEGORIES:
            if (value := event.payload.get(category)) is not None:
                state.categories[category.removesuffix("_bytes")] = value
        now, peak = state.take_memory(event.payload)
        if now is None:
            return
        state.now_bytes = now
        state.peak_bytes = max(state.peak_bytes or 0, peak if peak is not None else now)
        self._add_memory(event, now)

    def _add_memory(self, event: Event, now_bytes: int) -> None:
        """Put a rank's memory in the row of its moment; a row keeps the largest."""
        tick = int(max(event.wall_s - self.started_s, 0.0) / self._tick_s)
        t = round(tick * self._tick_s, 3)
        if not self.memory.x or t > self.memory.x[-1]:
            self._row = {}
        t = max(t, self.memory.x[-1]) if self.memory.x else t
        self._row[event.rank] = max(now_bytes, self._row.get(event.rank, 0))
        row = [self._row.get(rank) for rank in range(max(self.ranks) + 1)]
        before = len(self.memory.x)
        self.memory.add(t, row)
        if len(self.memory.x) < before:
            self._tick_s *= 2
        self._dirty.rows[t] = [t, *row]


@dataclass(kw_only=True)
class _Dirty:
    """What changed since the last call of `Picture.changes`."""

    points: dict[str, list[list[Any]]] = field(default_factory=dict)
    rows: dict[float, list[Any]] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    comm: bool = False
