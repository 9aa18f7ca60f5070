"""What a run came to, in one short table, and the file that holds the whole."""

import html
import os
from dataclasses import dataclass
from pathlib import Path

from workbench.notebook.runs import compare_run, write_report
from workbench.notebook.views import layout_text
from workbench.telemetry.derive import Measured
from workbench.telemetry.paths import store_path
from workbench.telemetry.store import Run, RunStore
from workbench.units import bytes_text, seconds_text

_UNKNOWN = "not measured"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run's outcome; shows itself as a table, and is a path to the whole report.

    Args:
        path: The HTML file, which loads nothing from outside.
        facts: Name and text of each line of the table.
    """

    path: Path
    facts: tuple[tuple[str, str], ...]

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.facts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in self.facts
        )
        return f"<table>{''.join(rows)}</table>"


def make_report(
    run: str | None = None, path: str | os.PathLike[str] | None = None
) -> Report:
    """Write a run's report and sum the run up.

    Raises:
        StoreError: No such run.
    """
    written = write_report(run, path)
    with RunStore(store_path(), read_only=True) as store:
        found = store.run(run)
        measured = Measured.from_store(store, found.id)
        validation = _first_and_last(store, found.id, "val_loss")
    facts = (
        ("ranks", str(found.num_ranks)),
        ("layout", layout_text(found.layout_toml)),
        ("loss", _change(measured.losses)),
        ("validation loss", _change(validation)),
        *_predicted_beside_measured(found),
        ("step, median", _seconds(measured.median_step_s)),
        ("wall time", _seconds(_wall_s(found))),
        ("report", str(written)),
    )
    return Report(path=written, facts=facts)


def _first_and_last(store: RunStore, run: str, name: str) -> tuple[float, float] | None:
    values = [
        event.payload[name]
        for event in store.events(run, kind="metric")
        if name in event.payload
    ]
    return (values[0], values[-1]) if values else None


def _change(values: tuple[float, float] | None) -> str:
    return _UNKNOWN if values is None else f"{values[0]:.3f} -> {values[1]:.3f}"


def _seconds(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else seconds_text(seconds)


def _wall_s(run: Run) -> float | None:
    end_s = run.ended_s or run.heartbeat_s
    return None if end_s is None else end_s - run.started_s


def _predicted_beside_measured(run: Run) -> tuple[tuple[str, str], ...]:
    """Return the largest rank's peak and its traffic of a step, both ways."""
    if not run.plan_json:
        return (("predicted", "the run was started without a plan"),)
    lines = compare_run(run.id).lines
    peaks = [line for line in lines if line.figure == "memory.peak"]
    sent = [
        line
        for line in lines
        if line.figure.startswith("sent.") and line.predicted is not None
    ]
    per_step = "bytes sent a step and rank"
    return (
        ("peak memory predicted", _largest([p.predicted for p in peaks])),
        ("peak memory measured", _largest([p.measured for p in peaks])),
        (f"{per_step} predicted", _total([s.predicted for s in sent])),
        (f"{per_step} measured", _total([s.measured for s in sent])),
    )


def _largest(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return bytes_text(max(known)) if known else _UNKNOWN


def _total(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known):,.0f} B" if known else _UNKNOWN
