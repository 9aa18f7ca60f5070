"""Translates a run's picture and plan into what the widgets are told, and into text."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench_widgets.payloads import (
    Bar,
    MonitorUpdate,
    Panels,
    Part,
    PhaseShare,
    Tile,
    Tone,
)

from workbench.errors import LayoutError
from workbench.layout import Axis
from workbench.layout.toml_file import read_toml
from workbench.notebook.hints import comm_label, hints
from workbench.notebook.planned import Planned
from workbench.telemetry.picture import Picture, RankState
from workbench.telemetry.store import Run
from workbench.units import bytes_text, count_text, seconds_text

#: Above so many ranks, three stand for all where each would have a bar of its own.
MAX_BARS = 16
#: Above so many ranks, min, median and max are sent in place of every rank.
MAX_COLUMNS = 1024
#: Differences up to this share of the plan are as good as the plan promises.
MEMORY_TOLERANCE = 0.10
#: How each status is to be taken; others are "done".
STATUS_TONES: dict[str, Tone] = {"running": "good", "failed": "bad", "lost": "bad"}

_BAND = ("min", "median", "max")
_RESIDENT = ("weights", "gradients", "optimizer")
_REST = "activations and other"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A run as it is known at one moment.

    Args:
        run: What the store says of it.
        picture: What has been measured.
        planned: What was predicted, None without a plan.
        live: Whether a feed is being read.
        recording: Why nothing is being written; "" while all is well.
        now_s: Seconds since the epoch.
    """

    run: Run
    picture: Picture
    planned: Planned | None
    live: bool
    recording: str
    now_s: float

    @property
    def status(self) -> str:
        """The run's status; "lost" where it went silent."""
        return self.run.status_at(self.now_s)


def snapshot(shown: Shown) -> MonitorUpdate:
    """Return everything about a run, for a view that knows nothing yet."""
    memory = shown.picture.memory
    names, rows = memory_columns(memory.y, shown.run.num_ranks)
    return MonitorUpdate(
        series={name: (s.x, _numbers(s.y)) for name, s in shown.picture.series.items()},
        memory_names=names,
        memory_x=memory.x,
        memory_rows=rows,
        panels=panels(shown),
    )


def changes(
    changed: dict[str, Any], *, num_ranks: int, panels: Panels | None
) -> MonitorUpdate:
    """Return what a feed's change adds, for views that know what was before."""
    names, rows = memory_columns([row[1:] for row in changed["memory"]], num_ranks)
    return MonitorUpdate(
        series={n: (x, _numbers(y)) for n, (x, y) in changed["series"].items()},
        memory_names=names,
        memory_x=[row[0] for row in changed["memory"]],
        memory_rows=rows,
        panels=panels,
    )


def memory_columns(
    rows: Sequence[Sequence[float | None]], num_ranks: int
) -> tuple[Sequence[str], list[list[float]]]:
    """Return column names and rows: every rank, or min, median, max of many."""
    if num_ranks > MAX_COLUMNS:
        return _BAND, [_spread(row) for row in rows]
    names = [f"rank {rank}" for rank in range(num_ranks)]
    padding = [None] * num_ranks
    return names, [_numbers([*row, *padding][:num_ranks]) for row in rows]


def panels(shown: Shown) -> Panels:
    """Return all words and bars of a monitor."""
    planned = shown.planned
    return Panels(
        status=shown.status,
        statusText=_status_text(shown),
        tone=STATUS_TONES.get(shown.status, "done"),
        title=shown.run.name,
        detail=detail_text(shown.run),
        alert=shown.recording,
        tiles=_tiles(shown),
        memory=memory_bars(shown),
        comm=comm_bars(shown),
        phases=_phases(shown.picture),
        notes=_notes(shown),
        plannedPeakBytes=None if planned is None else planned.peak_bytes,
        plannedTokensPerS=None if planned is None else planned.tokens_per_s,
    )


def detail_text(run: Run) -> str:
    """Say in a line where a run runs: ranks, layout, person, host, start."""
    ranks = f"{run.num_ranks} rank{'s' if run.num_ranks != 1 else ''}"
    layout = layout_text(run.layout_toml)
    return ", ".join(
        part for part in (ranks, layout, f"{run.user} on {run.host}") if part
    )


def layout_text(layout_toml: str) -> str:
    """Say a layout's degrees above 1 in a line: "dp 2 x tp 4"."""
    try:
        layout = read_toml(layout_toml)
    except LayoutError:
        return ""
    degrees = [(axis, layout.degree(axis)) for axis in Axis]
    return " x ".join(f"{axis} {degree}" for axis, degree in degrees if degree > 1)


def difference_text(measured: float, planned: float) -> str:
    """Say how far a measured number of bytes is from the planned one."""
    if measured == planned:
        return "equal to the plan"
    sign = "+" if measured > planned else "-"
    by = bytes_text(abs(measured - planned))
    share = f" ({sign}{abs(measured / planned - 1):.1%})" if planned else ""
    return f"{sign}{by}{share}"


def text(shown: Shown) -> str:
    """Say a run in a few lines, for terminals and front ends without widgets."""
    lines = [
        f"run {shown.run.name!r} ({shown.run.id}): {_status_text(shown)}",
        f"  {detail_text(shown.run)}",
    ]
    lines += [
        f"  {tile['label'].lower()}: {tile['value']}"
        + (f" ({tile['note']})" if tile["note"] else "")
        for tile in _tiles(shown)
    ]
    for title, bars in (
        ("peak memory per rank", memory_bars(shown)),
        ("bytes sent per rank and step", comm_bars(shown)),
    ):
        lines += [f"  {title}: measured, planned, difference"]
        lines += [_bar_text(bar) for bar in bars] or ["    not measured"]
    return "\n".join([*lines, *(f"  note: {note}" for note in _notes(shown))])


def memory_bars(shown: Shown) -> list[Bar]:
    """Return peak memory beside the plan: of every rank, or of three of many."""
    ranks = sorted(shown.picture.ranks.values(), key=lambda state: state.rank)
    known = [state for state in ranks if state.peak_bytes is not None]
    if len(ranks) <= MAX_BARS or not known:
        return [
            _memory_bar(f"rank {s.rank}", s, shown.planned) for s in ranks[:MAX_BARS]
        ]
    known.sort(key=lambda state: state.peak_bytes or 0)
    picked = zip(_BAND, (known[0], known[len(known) // 2], known[-1]), strict=True)
    return [_memory_bar(f"{n} (rank {s.rank})", s, shown.planned) for n, s in picked]


def comm_bars(shown: Shown) -> list[Bar]:
    """Return bytes sent per collective beside the plan, what is missing included."""
    planned = {} if shown.planned is None else dict(shown.planned.sent_bytes)
    bars = []
    for row in shown.picture.comm:
        key = (row["op"], row["axis"], row["phase"])
        bars.append(
            _comm_bar(comm_label(*key), row["sent_bytes"], planned.pop(key, None))
        )
    bars += [_comm_bar(comm_label(*key), None, sent) for key, sent in planned.items()]
    return [bar for bar in bars if bar["measured"] or bar["planned"]]


def _status_text(shown: Shown) -> str:
    if shown.status == "running":
        newest_s = max((r.wall_s for r in shown.picture.ranks.values()), default=0.0)
        if not newest_s:
            return "running, nothing heard yet"
        heard_s = max(shown.now_s - newest_s, 0.0)
        return "running" if heard_s < 3 else f"running, silent for {heard_s:.0f} s"
    if shown.status == "lost":
        silent = seconds_text(shown.now_s - shown.run.heartbeat_s)
        return f"lost: its recorder went silent {silent} ago"
    return shown.status


def _tiles(shown: Shown) -> list[Tile]:
    ended_s = shown.run.ended_s
    duration_s = (shown.now_s if ended_s is None else ended_s) - shown.run.started_s
    if shown.status == "lost":
        duration_s = shown.run.heartbeat_s - shown.run.started_s
    return [
        _loss_tile(shown.picture),
        _speed_tile(shown),
        _step_tile(shown),
        _peak_tile(shown),
        _tile("Time", seconds_text(duration_s), _checkpoints_text(shown.picture)),
        _dropped_tile(shown.picture),
    ]


def _tile(label: str, value: str, note: str = "", tone: Tone = "") -> Tile:
    return Tile(label=label, value=value, note=note, tone=tone)


def _loss_tile(picture: Picture) -> Tile:
    loss, validation = _newest(picture, "loss"), _newest(picture, "val_loss")
    note = "" if validation is None else f"validation {validation:.3f}"
    if loss is None:
        return _tile("Loss", "not measured", note)
    step = int(picture.series["loss"].x[-1])
    return _tile(f"Loss at step {step}", f"{loss:.3f}", note)


def _speed_tile(shown: Shown) -> Tile:
    speed = _newest(shown.picture, "tokens_per_s")
    if speed is None:
        return _tile("Tokens per second", "not measured")
    note = ""
    if shown.planned is not None:
        share = speed / shown.planned.tokens_per_s - 1
        note = f"planned {count_text(shown.planned.tokens_per_s)}: {share:+.0%}"
    return _tile("Tokens per second", count_text(speed), note)


def _step_tile(shown: Shown) -> Tile:
    series = shown.picture.series.get("step_s")
    if series is None:
        return _tile("Step, median", "not measured")
    step_s = statistics.median(series.y)
    planned = shown.planned
    if planned is None:
        return _tile("Step, median", seconds_text(step_s))
    inside = planned.low_s <= step_s <= planned.high_s
    note = f"planned {seconds_text(planned.low_s)} to {seconds_text(planned.high_s)}"
    return _tile("Step, median", seconds_text(step_s), note, "" if inside else "warn")


def _peak_tile(shown: Shown) -> Tile:
    known = [r for r in shown.picture.ranks.values() if r.peak_bytes is not None]
    if not known:
        return _tile("Peak memory", "not measured")
    top = max(known, key=lambda state: state.peak_bytes or 0)
    bar = _memory_bar("", top, shown.planned)
    note = f"rank {top.rank}"
    if bar["planned"] is not None and bar["measured"] is not None:
        share = bar["measured"] / bar["planned"] - 1
        note += f", planned {bar['plannedText']}: {share:+.1%}"
    tone: Tone = "warn" if bar["tone"] in ("warn", "bad") else ""
    return _tile("Peak memory", bar["measuredText"], note, tone)


def _dropped_tile(picture: Picture) -> Tile:
    if not picture.dropped:
        return _tile("Events dropped", "0", "all are recorded")
    return _tile(
        "Events dropped", count_text(picture.dropped), "sums are too small", "warn"
    )


def _checkpoints_text(picture: Picture) -> str:
    num = picture.checkpoints
    return "" if not num else f"{num} checkpoint{'s' if num != 1 else ''}"


def _memory_bar(label: str, state: RankState, planned: Planned | None) -> Bar:
    plan = None if planned is None else planned.memory.get(state.rank)
    expected = None if plan is None else plan.peak_bytes
    bar = _bar(label, state.peak_bytes, expected)
    bar["parts"] = _parts(state.categories, state.peak_bytes)
    if plan is not None:
        categories = {str(name): held for name, held in plan.by_category.items()}
        bar["plannedParts"] = _parts(categories, expected)
        if state.peak_bytes is not None:
            bar["tone"] = _memory_tone(
                state.peak_bytes, plan.peak_bytes, plan.capacity_bytes
            )
    return bar


def _memory_tone(peak: int, planned: int, capacity: int) -> Tone:
    if peak > capacity:
        return "bad"
    return "good" if abs(peak - planned) <= MEMORY_TOLERANCE * planned else "warn"


def _comm_bar(label: str, measured: float | None, planned: float | None) -> Bar:
    bar = _bar(label, measured, planned)
    if measured is not None and planned is not None:
        bar["tone"] = "good" if measured == planned else "warn"
    return bar


def _bar(label: str, measured: float | None, planned: float | None) -> Bar:
    if measured is None:
        difference = ""
    elif planned is None:
        difference = "not planned"
    else:
        difference = difference_text(measured, planned)
    return Bar(
        label=label,
        measured=measured,
        planned=planned,
        measuredText="not measured" if measured is None else bytes_text(measured),
        plannedText="not planned" if planned is None else bytes_text(planned),
        difference=difference,
        tone="",
        parts=[],
        plannedParts=[],
    )


def _parts(categories: dict[str, int], peak: float | None) -> list[Part]:
    """Cut a peak into what stays through a step and the rest."""
    parts = [
        Part(name=name, bytes=categories[name])
        for name in _RESIDENT
        if categories.get(name)
    ]
    rest = (peak or 0) - sum(part["bytes"] for part in parts)
    if parts and rest > 0:
        parts.append(Part(name=_REST, bytes=rest))
    return parts


def _bar_text(bar: Bar) -> str:
    known = f"{bar['measuredText']:>12} {bar['plannedText']:>12}  {bar['difference']}"
    return f"    {bar['label']:<32} {known}".rstrip()


def _phases(picture: Picture) -> list[PhaseShare]:
    total = sum(picture.phases.values())
    if total <= 0:
        return []
    return [
        PhaseShare(name=name, seconds=seconds, text=f"{name} {seconds / total:.0%}")
        for name, seconds in sorted(picture.phases.items(), key=lambda item: -item[1])
    ]


def _notes(shown: Shown) -> list[str]:
    return hints(shown.picture, memory_bars(shown), comm_bars(shown))


def _newest(picture: Picture, name: str) -> float | None:
    series = picture.series.get(name)
    return None if series is None or not series.y else float(series.y[-1])


def _spread(row: Sequence[float | None]) -> list[float]:
    known = sorted(value for value in row if value is not None)
    if not known:
        return [math.nan] * 3
    return [known[0], known[len(known) // 2], known[-1]]


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
