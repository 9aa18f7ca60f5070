"""What the widgets are told, as typed dicts; `workbench.notebook.views` makes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

#: How a figure is to be taken: a colour, and always a word or a shape beside it.
Tone = Literal["", "good", "warn", "bad", "done"]


class Part(TypedDict):
    """One category of a bar."""

    name: str
    bytes: float


class Bar(TypedDict):
    """A measured figure with the planned one beside it; None: not measured/planned."""

    label: str
    measured: float | None
    planned: float | None
    measuredText: str
    plannedText: str
    difference: str
    tone: Tone
    parts: list[Part]
    plannedParts: list[Part]


class Tile(TypedDict):
    """One large number."""

    label: str
    value: str
    note: str
    tone: Tone


class PhaseShare(TypedDict):
    """Seconds that one phase took so far, and how to say it."""

    name: str
    seconds: float
    text: str


class Panels(TypedDict):
    """All words and bars of a monitor."""

    status: str
    statusText: str
    tone: Tone
    title: str
    detail: str
    alert: str
    tiles: list[Tile]
    memory: list[Bar]
    comm: list[Bar]
    phases: list[PhaseShare]
    notes: list[str]
    plannedPeakBytes: float | None
    plannedTokensPerS: float | None


@dataclass(frozen=True, kw_only=True)
class MonitorUpdate:
    """Points and words for a monitor: everything (a snapshot) or what is new.

    Args:
        series: Metric name to (x, y); x strictly rising.
        memory_names: Columns of `memory_rows`: ranks, or "min", "median", "max".
        memory_x: Seconds since the run began.
        memory_rows: Bytes per column; NaN where not measured.
        panels: All words and bars, or None where they did not change.
    """

    series: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(
        default_factory=dict
    )
    memory_names: Sequence[str] = ()
    memory_x: Sequence[float] = ()
    memory_rows: Sequence[Sequence[float]] = ()
    panels: Panels | None = None


class RunRow(TypedDict):
    """One run in a list, ready to be read."""

    id: str
    name: str
    status: str
    tone: Tone
    started: str
    time: str
    ranks: str
    layout: str
    loss: str
    by: str


class AxisRow(TypedDict):
    """One axis of the grid, with the degrees that may be chosen."""

    name: str
    meaning: str
    degree: int
    options: list[int]
    fills: bool


class TileKind(TypedDict):
    """What ranks of one kind hold."""

    ranks: str
    parts: list[Part]
    peak: float
    text: str
    fits: bool


class Choice(TypedDict):
    """One setting beside the degrees."""

    name: str
    label: str
    value: str
    choices: list[str]


class StageCell(TypedDict):
    """One stage of the pipeline: how many layers it holds."""

    layers: int
    text: str


class Line(TypedDict):
    """A figure with what it says."""

    label: str
    text: str
    note: str


class FrontPoint(TypedDict):
    """A layout that none beats in both time and memory."""

    label: str
    seconds: float
    bytes: float


class BuilderPicture(TypedDict):
    """All that a layout builder shows."""

    title: str
    axes: list[AxisRow]
    choices: list[Choice]
    numRanks: int
    ranksPerNode: int
    capacity: float
    capacityText: str
    kinds: list[TileKind]
    kindOf: list[int]
    stages: list[StageCell]
    tiles: list[Tile]
    step: list[PhaseShare]
    comm: list[Line]
    fits: bool
    verdict: str
    reasons: list[str]
    pinned: str
    code: str
    toml: str
    error: str
    searching: bool
    found: list[Line]
    foundText: str
    front: list[FrontPoint]
    canUndo: bool
    canRedo: bool
