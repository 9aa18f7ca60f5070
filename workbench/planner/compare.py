"""A plan beside a measurement: every figure predicted, measured, and the difference."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from workbench.planner.contract import Plan, TextTable
from workbench.planner.tables import html_table, text_table
from workbench.telemetry.derive import Measured, MeasuredComm
from workbench.units import bytes_text, seconds_text

Unit = Literal["bytes", "seconds", "operations"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One figure, predicted and measured.

    Args:
        figure: Its name, e.g. "memory.weights", "sent.all_reduce.dp".
        ranks: The ranks that it holds for.
        unit: Of both values.
        predicted: None where the plan says nothing about it.
        measured: None where it was not measured.
    """

    figure: str
    ranks: tuple[int, ...]
    unit: Unit
    predicted: float | None
    measured: float | None

    @property
    def difference(self) -> float | None:
        """Measured less predicted; None where one is missing."""
        if self.predicted is None or self.measured is None:
            return None
        return self.measured - self.predicted

    @property
    def percent(self) -> float | None:
        """The difference in percent of the measurement; None where one is missing."""
        if self.difference is None or not self.measured:
            return None
        return 100 * self.difference / self.measured


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(TextTable):
    """All figures of one run beside its plan; shows itself as a table."""

    run: str
    lines: tuple[Line, ...]

    def line(self, figure: str, rank: int = 0) -> Line:
        """Return one figure of one rank.

        Raises:
            KeyError: No such figure for this rank.
        """
        for line in self.lines:
            if line.figure == figure and rank in line.ranks:
                return line
        raise KeyError((figure, rank))

    def __str__(self) -> str:
        return text_table(_HEADER, [_cells(line) for line in self.lines])

    def _repr_html_(self) -> str:
        return html_table(_HEADER, [_cells(line) for line in self.lines])


def compare(plan: Plan, measured: Measured) -> Comparison:
    """Put a plan beside what a run did.

    Memory stands by rank and category with the peak of live bytes; traffic by
    operation, axis and phase, per step; and the median step.
    """
    lines = [*_memory(plan, measured), *_comm(plan, measured), *_step(plan, measured)]
    return Comparison(run=measured.run, lines=tuple(_merged(lines)))


def _memory(plan: Plan, measured: Measured) -> Iterator[Line]:
    seen = {entry.rank: entry for entry in measured.memory}
    for planned in plan.memory:
        found = seen.get(planned.rank)
        for name, size in planned.by_category.items():
            got = found.by_category.get(name) if found else None
            if name in {"weights", "gradients", "optimizer"} or got is not None:
                yield _line(f"memory.{name}", planned.rank, "bytes", size, got)
        peak = found.peak_bytes if found else None
        yield _line("memory.peak", planned.rank, "bytes", planned.peak_bytes, peak)


def _comm(plan: Plan, measured: Measured) -> Iterator[Line]:
    planned: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for comm in plan.comm:
        key = (str(comm.op), comm.axis, str(comm.phase))
        before = planned.get(key, (0, 0, 0))
        values = (comm.count, comm.payload_bytes, comm.sent_bytes)
        planned[key] = tuple(a + b for a, b in zip(before, values, strict=True))  # type: ignore[assignment]
    seen = {(c.op, c.axis, c.phase, c.rank): c for c in measured.comm}
    keys = sorted({*planned, *((c.op, c.axis, c.phase) for c in measured.comm)})
    for key in keys:
        for rank in range(plan.layout.num_ranks):
            yield from _comm_lines(key, rank, planned.get(key), seen.get((*key, rank)))


def _comm_lines(
    key: tuple[str, str, str],
    rank: int,
    planned: tuple[int, int, int] | None,
    seen: MeasuredComm | None,
) -> Iterator[Line]:
    op, axis, phase = key
    name = f"{op}.{axis}" if phase == "step" else f"{op}.{axis}.{phase}"
    got = (seen.count, seen.payload_bytes, seen.sent_bytes) if seen else (None,) * 3
    want = planned or (None,) * 3
    kinds: tuple[tuple[str, Unit], ...] = (
        ("count", "operations"),
        ("payload", "bytes"),
        ("sent", "bytes"),
    )
    for (what, unit), expected, counted in zip(kinds, want, got, strict=True):
        yield _line(f"{what}.{name}", rank, unit, expected, counted)


def _step(plan: Plan, measured: Measured) -> Iterator[Line]:
    seconds = plan.step_time.total_s
    yield Line(
        figure="step_time.total",
        ranks=tuple(range(plan.layout.num_ranks)),
        unit="seconds",
        predicted=seconds,
        measured=measured.median_step_s,
    )


def _line(
    figure: str, rank: int, unit: Unit, predicted: float | None, measured: float | None
) -> Line:
    return Line(
        figure=figure,
        ranks=(rank,),
        unit=unit,
        predicted=predicted,
        measured=measured,
    )


def _merged(lines: list[Line]) -> Iterator[Line]:
    """Join lines that differ in their rank alone, keeping the first one's place."""
    joined: dict[Line, list[int]] = {}
    for line in lines:
        joined.setdefault(replace(line, ranks=()), []).extend(line.ranks)
    for line, ranks in joined.items():
        yield replace(line, ranks=tuple(ranks))


_HEADER = ("figure", "ranks", "predicted", "measured", "difference", "percent")


def _cells(line: Line) -> list[str]:
    difference, percent = line.difference, line.percent
    return [
        line.figure,
        ranks_text(line.ranks),
        _value(line.predicted, line.unit),
        "not measured" if line.measured is None else _value(line.measured, line.unit),
        "" if difference is None else _value(difference, line.unit),
        "" if percent is None else f"{percent:+.2f} %",
    ]


def ranks_text(ranks: tuple[int, ...]) -> str:
    """Return ranks as runs.

    >>> ranks_text((0, 1, 2, 5))
    '0-2,5'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _value(value: float | None, unit: Unit) -> str:
    if value is None:
        return "not planned"
    if unit == "seconds":
        return seconds_text(value)
    return bytes_text(value) if unit == "bytes" else f"{value:g}"
