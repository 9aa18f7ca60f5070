"""Translates a plan into what the layout builder shows."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, get_args

from workbench_widgets.payloads import (
    AxisRow,
    BuilderPicture,
    Choice,
    FrontPoint,
    Line,
    Part,
    PhaseShare,
    StageCell,
    Tile,
    TileKind,
)

from workbench.errors import LayoutError
from workbench.layout import Axis, Layout
from workbench.layout.check import check_batch, check_model
from workbench.layout.layout import Precision, Recompute, Schedule
from workbench.model import ModelSpec
from workbench.planner import MemoryPlan, Plan
from workbench.units import bytes_text, count_text, seconds_text

if TYPE_CHECKING:
    from workbench.planner.search import SearchResult

_MEANINGS = {
    Axis.PP: "layer stages",
    Axis.DP: "model copies",
    Axis.FSDP: "cut copies",
    Axis.CP: "sequence cut",
    Axis.EP: "experts",
    Axis.TP: "matrix cut",
}

#: Settings beside the degrees: name, what it is called, its values as text.
_CHOICES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("num_microbatches", "Micro-batches", tuple(str(2**n) for n in range(8))),
    ("precision", "Precision", get_args(Precision)),
    ("recompute", "Recompute", get_args(Recompute)),
    ("schedule", "Schedule", get_args(Schedule)),
    ("zero", "ZeRO over dp", ("0", "1", "2", "3")),
    ("sp", "Sequence parallel", ("off", "on")),
)


def picture(
    plan: Plan,
    *,
    pinned: Plan | None,
    options: Mapping[Axis, list[int]],
    fills: Axis,
    error: str,
    found: "SearchResult | None",
    searching: bool,
    can_undo: bool,
    can_redo: bool,
) -> BuilderPicture:
    """Return all that the builder shows of a plan."""
    group = plan.hardware.groups[0]
    capacity = plan.memory[0].capacity_bytes
    kinds, kind_of = _kinds(plan.memory)
    return BuilderPicture(
        title=f"{plan.model.name} on {group.num_devices} x {group.device.kind}",
        axes=_axes(plan.layout, options, fills),
        choices=_choices(plan.layout),
        numRanks=plan.layout.num_ranks,
        ranksPerNode=group.devices_per_node,
        capacity=capacity,
        capacityText=bytes_text(capacity),
        kinds=kinds,
        kindOf=kind_of,
        stages=_stages(plan),
        tiles=_tiles(plan),
        step=_step(plan),
        comm=_comm(plan),
        fits=plan.fits,
        verdict="fits" if plan.fits else "does not fit",
        reasons=list(plan.reasons)[:4],
        pinned="" if pinned is None else against(plan, pinned),
        code=code(plan.layout),
        toml=plan.layout.to_toml(),
        error=error,
        searching=searching,
        found=[] if found is None else [_suggestion(best) for best in found.best],
        foundText="" if found is None else _found_text(found),
        front=[] if found is None else _front(found),
        canUndo=can_undo,
        canRedo=can_redo,
    )


def _suggestion(plan: Plan) -> Line:
    toml = plan.layout.to_toml().removeprefix("[layout]").strip()
    settings = toml.replace("\n", ", ").replace('"', "")
    peak = bytes_text(plan.peak.peak_bytes)
    figures = f"{seconds_text(plan.step_time.total_s)}, {peak}, MFU {plan.mfu:.1%}"
    return Line(label=str(plan.layout), text=figures, note=settings)


def _found_text(found: "SearchResult") -> str:
    """Say how many layouts were judged and why others were not."""
    left_out = ", ".join(
        f"{count_text(number)} ({reason})"
        for reason, number in found.rejected.items()
        if number
    )
    return f"{count_text(found.num_judged)} layouts judged; left out: {left_out}"


def _front(found: "SearchResult") -> list[FrontPoint]:
    return [
        FrontPoint(
            label=f"{point.layout}: {seconds_text(point.step_s)},"
            f" {bytes_text(point.peak_bytes)}",
            seconds=point.step_s,
            bytes=point.peak_bytes,
        )
        for point in found.front
    ]


def divisors(number: int) -> list[int]:
    """Return the whole numbers that divide a number, rising."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def check(layout: Layout, model: ModelSpec, global_batch: int) -> None:
    """Refuse a layout that the model or the batch does not divide by.

    Raises:
        LayoutError: With the relation that failed.
    """
    check_model(layout, model)
    check_batch(layout, global_batch)


def chosen(layout: Layout, name: str, text: str) -> Layout:
    """Return the layout with one setting changed to what its text says.

    Raises:
        LayoutError: No such setting, or a layout that contradicts itself.
    """
    known = {choice: values for choice, _, values in _CHOICES}
    if text not in known.get(name, ()):
        raise LayoutError(f"no setting {name!r} with value {text!r}")
    value: Any = text
    if name in ("num_microbatches", "zero"):
        value = int(text)
    elif name == "sp":
        value = text == "on"
    return replace(layout, **{name: value})


def code(layout: Layout) -> str:
    """Return Python that makes the layout again."""
    default_order = Layout().order
    short = tuple(axis for axis in default_order if axis in layout.order)
    if layout.axes() != tuple(a for a in short if layout.degree(a) > 1):
        return f'wb.Layout.from_toml("""\n{layout.to_toml()}\n""")'
    values = [
        f"{field.name}={getattr(layout, field.name)!r}"
        for field in fields(Layout)
        if field.name != "order" and getattr(layout, field.name) != field.default
    ]
    return f"wb.Layout({', '.join(values)})"


def against(plan: Plan, pinned: Plan) -> str:
    """Say how a plan compares with the pinned one."""
    speed = pinned.step_time.total_s / plan.step_time.total_s - 1
    memory = plan.peak.peak_bytes - pinned.peak.peak_bytes
    faster = f"{abs(speed):.0%} {'faster' if speed >= 0 else 'slower'}"
    more = f"{bytes_text(abs(memory))} {'more' if memory >= 0 else 'less'}"
    return f"Against the pinned {pinned.layout}: {faster}, {more} memory at peak."


def _axes(
    layout: Layout, options: Mapping[Axis, list[int]], fills: Axis
) -> list[AxisRow]:
    order = [axis for axis in layout.order if axis in _MEANINGS]
    order += [axis for axis in _MEANINGS if axis not in order]
    return [
        AxisRow(
            name=axis.value,
            meaning=_MEANINGS[axis],
            degree=layout.degree(axis),
            options=options[axis] or [layout.degree(axis)],
            fills=axis == fills,
        )
        for axis in order
        if axis == fills or len(options[axis]) > 1 or layout.degree(axis) > 1
    ]


def _choices(layout: Layout) -> list[Choice]:
    shown = []
    for name, label, values in _CHOICES:
        value = getattr(layout, name)
        text = ("on" if value else "off") if name == "sp" else str(value)
        needless = (name == "schedule" and layout.pp == 1) or (
            name == "sp" and layout.tp == 1
        )
        if not needless:
            known = list(values) if text in values else [*values, text]
            shown.append(Choice(name=name, label=label, value=text, choices=known))
    return shown


def _kinds(memory: tuple[MemoryPlan, ...]) -> tuple[list[TileKind], list[int]]:
    """Group ranks that hold the same: what is drawn once for each kind."""
    kinds: list[TileKind] = []
    place: dict[tuple[Any, ...], int] = {}
    kind_of = []
    for rank in memory:
        key = (*rank.by_category.values(), rank.peak_bytes)
        if key not in place:
            place[key] = len(kinds)
            kinds.append(_kind(rank))
        kind_of.append(place[key])
    return kinds, kind_of


def _kind(memory: MemoryPlan) -> TileKind:
    fits = memory.peak_bytes <= memory.capacity_bytes
    parts = [Part(name=n, bytes=b) for n, b in memory.by_category.items() if b]
    words = ", ".join(f"{part['name']} {bytes_text(part['bytes'])}" for part in parts)
    peak, capacity = bytes_text(memory.peak_bytes), bytes_text(memory.capacity_bytes)
    over = "" if fits else ", does not fit"
    return TileKind(
        ranks="",
        parts=parts,
        peak=memory.peak_bytes,
        text=f"{peak} of {capacity}{over} ({words})",
        fits=fits,
    )


def _stages(plan: Plan) -> list[StageCell]:
    """Return the layers of each stage, the first ones taking what does not divide."""
    num_stages = plan.layout.pp * plan.layout.chunks
    if num_stages == 1:
        return []
    layers = sum(block.repeat for block in plan.model.blocks if block.indexed)
    whole, rest = divmod(layers, num_stages)
    counts = [whole + (stage < rest) for stage in range(num_stages)]
    return [
        StageCell(layers=count, text=f"stage {stage}: {count} layers")
        for stage, count in enumerate(counts)
    ]


def _tiles(plan: Plan) -> list[Tile]:
    time = plan.step_time
    interval = f"{seconds_text(time.low_s)} to {seconds_text(time.high_s)}"
    per_device = plan.tokens_per_s / plan.layout.num_ranks
    tiles = [
        _tile("Step", seconds_text(time.total_s), interval),
        _tile(
            "Tokens per second",
            count_text(plan.tokens_per_s),
            f"{count_text(per_device)} per device",
        ),
        _tile("MFU", f"{plan.mfu:.1%}", f"HFU {plan.hfu:.1%}"),
        _tile(
            "Peak memory",
            bytes_text(plan.peak.peak_bytes),
            f"of {bytes_text(plan.peak.capacity_bytes)}, rank {plan.peak.rank}",
        ),
    ]
    price = plan.hardware.price_per_device_hour
    if price is not None:
        per_million = price * plan.layout.num_ranks / 3600 / plan.tokens_per_s * 1e6
        tiles.append(_tile("Price", f"{per_million:.2f}", "per million tokens"))
    return tiles


def _tile(label: str, value: str, note: str) -> Tile:
    return Tile(label=label, value=value, note=note, tone="")


def _step(plan: Plan) -> list[PhaseShare]:
    time = plan.step_time
    parts = {
        "compute": time.compute_s,
        "communication": time.exposed_comm_s,
        "bubble": time.bubble_s,
        "optimizer": time.optimizer_s,
        "input": time.input_s,
    }
    return [
        PhaseShare(
            name=name,
            seconds=s,
            text=f"{name} {s / time.total_s:.0%}, {seconds_text(s)}",
        )
        for name, s in parts.items()
        if s > 0
    ]


def _comm(plan: Plan) -> list[Line]:
    return [
        Line(
            label=f"{comm.op.replace('_', '-')} of {comm.purpose} over {comm.axis}",
            text=bytes_text(comm.sent_bytes),
            note=f"{seconds_text(comm.exposed_seconds)} waited",
        )
        for comm in plan.comm
        if comm.phase == "step"
    ]
