"""Two runs side by side: layouts, plans, what was measured, how the loss fell."""

import html
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.notebook import views
from workbench.notebook.planned import planned_of
from workbench.telemetry.derive import replay
from workbench.telemetry.paths import store_path
from workbench.telemetry.picture import Picture
from workbench.telemetry.store import Run, RunStore
from workbench.units import bytes_text, count_text, seconds_text


@dataclass(frozen=True, kw_only=True)
class TwoRuns:
    """Figures of two runs beside each other; shows itself as a table.

    Args:
        first, second: The runs.
        rows: (figure, first, second), ready to be read.
        curves: Training loss of each: (x, y).
    """

    first: Run
    second: Run
    rows: tuple[tuple[str, str, str], ...]
    curves: tuple[tuple[Sequence[float], Sequence[float]], ...]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return "\n".join(
            "  ".join(
                f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)
            ).rstrip()
            for row in self.rows
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = (
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table>{''.join(rows)}</table>"


def two_runs(first: str | None, second: str, *, store: Path | None = None) -> TwoRuns:
    """Read two runs, the first the newest by default, and put them side by side.

    Raises:
        StoreError: If there is no such run.
    """
    with RunStore(store or store_path(), read_only=True) as runs:
        found = [runs.run(first), runs.run(second)]
        pictures = [replay(runs, run.id) for run in found]
    columns = [_column(r, p) for r, p in zip(found, pictures, strict=True)]
    names = list(dict.fromkeys(name for column in columns for name in column))
    return TwoRuns(
        first=found[0],
        second=found[1],
        rows=tuple(
            (name, columns[0].get(name, "-"), columns[1].get(name, "-"))
            for name in names
        ),
        curves=tuple(_curve(picture) for picture in pictures),
    )


def _curve(picture: Picture) -> tuple[Sequence[float], Sequence[float]]:
    series = picture.series.get("loss")
    return ([], []) if series is None else (series.x, series.y)


def _column(run: Run, picture: Picture) -> dict[str, str]:
    """Return one run's figures by name; what was not measured is left out."""
    planned = planned_of(run.plan_json)
    column = {
        "run": f"{run.name} ({run.id})",
        "layout": views.layout_text(run.layout_toml) or "-",
        "ranks": str(run.num_ranks),
    }
    if planned is not None:
        column["step, planned"] = seconds_text(planned.step_s)
        column["peak memory, planned"] = bytes_text(planned.peak_bytes)
    return column | _measured(picture) | _traffic(picture)


def _measured(picture: Picture) -> dict[str, str]:
    column = {}
    for name in ("loss", "val_loss"):
        if (series := picture.series.get(name)) is not None:
            words = "loss" if name == "loss" else "validation loss"
            column[words] = f"{series.y[-1]:.3f} at step {int(series.x[-1])}"
    if (steps := picture.series.get("step_s")) is not None:
        column["step, median"] = seconds_text(statistics.median(steps.y))
    if (speed := picture.series.get("tokens_per_s")) is not None:
        column["tokens per second, median"] = count_text(statistics.median(speed.y))
    peaks = [s.peak_bytes for s in picture.ranks.values() if s.peak_bytes is not None]
    if peaks:
        column["peak memory"] = bytes_text(max(peaks))
    return column


def _traffic(picture: Picture) -> dict[str, str]:
    return {
        f"sent, {row['op'].replace('_', '-')} over {row['axis']}": bytes_text(
            row["sent_bytes"]
        )
        for row in picture.comm
        if row["phase"] == "step"
    }
