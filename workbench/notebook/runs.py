"""The runs of this user: a table, one run against its plan, a report as one file."""

import html
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench_widgets.page import monitor_fragment
from workbench_widgets.payloads import RunRow

from workbench.errors import StoreError
from workbench.notebook import views
from workbench.notebook.planned import planned_of
from workbench.telemetry.derive import Measured, replay
from workbench.telemetry.export import write_csv, write_parquet
from workbench.telemetry.paths import home, store_path
from workbench.telemetry.store import Run, RunStore
from workbench.units import seconds_text

if TYPE_CHECKING:
    from workbench.planner.compare import Comparison

_COLUMNS = ("id", "name", "status", "loss", "ranks", "layout", "started", "time", "by")


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """Runs, newest first. Iterate over it, index it, or let a notebook show it.

    Args:
        runs: The runs.
        rows: What is shown of each.
    """

    runs: tuple[Run, ...]
    rows: tuple[RunRow, ...]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: int) -> Run:
        return self.runs[index]

    def __str__(self) -> str:
        if not self.runs:
            return "no runs yet; wb.launch(plan) starts one"
        table = [_COLUMNS, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(
                f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)
            ).rstrip()
            for row in table
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.runs:
            return f"<p>{html.escape(str(self))}</p>"
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = "".join(f"<tr>{_cells_html(row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def run_table(path: Path | None = None) -> RunTable:
    """Read all runs; an empty table where there is no store yet."""
    path = path or store_path()
    if not path.exists():
        return RunTable(runs=(), rows=())
    now_s = time.time()
    with RunStore(path, read_only=True) as store:
        runs = tuple(store.runs())
        rows = tuple(_row(store, run, now_s) for run in runs)
    return RunTable(runs=runs, rows=rows)


def compare_run(run: str | None = None) -> "Comparison":
    """Put what a run was planned as beside what it did.

    Raises:
        StoreError: No such run, or one that was started without a plan.
    """
    from workbench.planner import Plan
    from workbench.planner.compare import compare

    with RunStore(store_path(), read_only=True) as store:
        found = store.run(run)
        if not found.plan_json:
            raise StoreError(
                f"run {found.id} was started without a plan",
                hint="wb.launch(plan) keeps the plan with the run",
            )
        return compare(
            Plan.from_json(found.plan_json), Measured.from_store(store, found.id)
        )


def write_report(
    run: str | None = None, path: str | os.PathLike[str] | None = None
) -> Path:
    """Write a run as one HTML file that loads nothing, and return its path.

    Args:
        run: Its id; the newest by default.
        path: The file; by default in the folder `reports` beside the run store.

    Raises:
        StoreError: No such run.
    """
    with RunStore(store_path(), read_only=True) as store:
        found = store.run(run)
        shown = views.Shown(
            run=found,
            picture=replay(store, found.id),
            planned=planned_of(found.plan_json),
            live=False,
            recording="",
            now_s=time.time(),
        )
    target = Path(path) if path is not None else _report_path(found.id)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_report_html(shown), encoding="utf-8")
    return target.absolute()


def export_run(
    run: str | None, folder: str | os.PathLike[str], file_format: str
) -> list[Path]:
    """Write a run as tables, "csv" or "parquet", and return their paths.

    Raises:
        StoreError: No such run or format, or a folder that cannot be written.
    """
    writers = {"csv": write_csv, "parquet": write_parquet}
    if file_format not in writers:
        raise StoreError(
            f"no format {file_format!r}", hint=f"one of {', '.join(writers)}"
        )
    with RunStore(store_path(), read_only=True) as store:
        return writers[file_format](store, store.run(run).id, Path(folder))


def _report_path(run: str) -> Path:
    return home() / "reports" / f"{run}.html"


def _row(store: RunStore, run: Run, now_s: float) -> RunRow:
    loss = store.newest_metrics(run.id).get("loss")
    status = run.status_at(now_s)
    end_s = run.ended_s or (now_s if status == "running" else run.heartbeat_s)
    return RunRow(
        id=run.id,
        name=run.name,
        status=status,
        tone=views.STATUS_TONES.get(status, "done"),
        started=time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_s)),
        time=seconds_text(end_s - run.started_s),
        ranks=str(run.num_ranks),
        layout=views.layout_text(run.layout_toml),
        loss="" if loss is None else f"{loss:.3f}",
        by=f"{run.user}@{run.host}",
    )


def _cells(row: RunRow) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in _COLUMNS)  # type: ignore[literal-required]


def _cells_html(row: RunRow) -> str:
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row))


def _report_html(shown: views.Shown) -> str:
    run = shown.run
    facts = {
        "run": run.id,
        "status": shown.status,
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(run.started_s)),
        "machine": f"{run.host}, {run.num_ranks} ranks",
        "by": run.user,
    }
    parts = [
        _facts_html(facts),
        monitor_fragment(views.snapshot(shown)),
        *_plan_html(run),
        f"<h2>Layout</h2><pre>{html.escape(run.layout_toml)}</pre>",
        "<details><summary>The monitor in words</summary>"
        f"<pre>{html.escape(views.text(shown))}</pre></details>",
    ]
    name = html.escape(run.name)
    return _PAGE.replace("{title}", name).replace("{body}", "\n".join(parts))


def _facts_html(facts: dict[str, str]) -> str:
    rows = (f"<tr><th>{k}</th><td>{html.escape(v)}</td></tr>" for k, v in facts.items())
    return f"<table>{''.join(rows)}</table>"


def _plan_html(run: Run) -> list[str]:
    """Return predicted beside measured, and the plan itself; nothing without a plan."""
    if planned_of(run.plan_json) is None:
        return ["<h2>Plan</h2><p>This run was started without a plan.</p>"]
    from workbench.planner import Plan

    plan = Plan.from_json(run.plan_json)
    comparison = compare_run(run.id)
    return [
        f"<h2>Predicted beside measured</h2>{comparison._repr_html_()}",
        f"<h2>Plan</h2>{plan._repr_html_()}",
    ]


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none';
 script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
body { margin: 0 auto; max-width: 1200px; padding: 16px 24px;
 font: 14px/1.5 system-ui, sans-serif; color: var(--jp-ui-font-color0);
 background: var(--jp-layout-color1); }
:root { --jp-layout-color1: #fff; --jp-layout-color2: #f3f4f6; --jp-ui-font-color0: #111;
 --jp-ui-font-color1: #374151; --jp-border-color2: #d4d7dd; --jp-border-color3: #e5e7eb; }
@media (prefers-color-scheme: dark) { :root { --jp-layout-color1: #1b1b1b;
 --jp-layout-color2: #2b2b2b; --jp-ui-font-color0: #f5f5f5; --jp-ui-font-color1: #d0d0d0;
 --jp-border-color2: #555; --jp-border-color3: #3a3a3a; } }
table { border-collapse: collapse; }
th, td { padding: 2px 14px 2px 0; text-align: left;
 border-bottom: 1px solid var(--jp-border-color2); }
pre { white-space: pre-wrap; padding: 8px 12px; background: var(--jp-layout-color2); }
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""
