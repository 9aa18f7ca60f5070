"""A run as plain tables, one file for each kind of event."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from workbench.errors import StoreError
from workbench.telemetry.events import Event, Kind
from workbench.telemetry.store import RunStore

_FIRST_COLUMNS = ("wall_s", "monotonic_s", "rank", "cause")


def write_csv(store: RunStore, run: str, folder: Path) -> list[Path]:
    """Write `metric.csv`, `sample.csv`, ... and `run.json`; return what was written.

    Columns are the payload's names, units included; a value that an event lacks is
    left empty. Kinds without events give no file.

    Args:
        store: Where the run is.
        run: Its id.
        folder: Made if missing; files of these names in it are replaced.

    Raises:
        StoreError: No such run, or a folder that cannot be written.
    """
    meta = store.run(run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        about = folder / "run.json"
        about.write_text(json.dumps(vars(meta), indent=2) + "\n", encoding="utf-8")
        tables = [_write_table(store, run, kind, folder) for kind in get_args(Kind)]
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be written: {error}", hint="choose another folder"
        ) from error
    return [about, *(path for path in tables if path is not None)]


def write_parquet(store: RunStore, run: str, folder: Path) -> list[Path]:
    """Write `metric.parquet`, `sample.parquet`, ...; return what was written.

    Raises:
        StoreError: pyarrow is not installed, and as `write_csv`.
    """
    try:
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise StoreError(
            "Parquet files need pyarrow, which is not installed",
            hint='pip install pyarrow, or export with format="csv"',
        ) from error
    written = []
    for path in write_csv(store, run, folder):
        if path.suffix == ".csv":
            table = pyarrow.csv.read_csv(path)
            target = path.with_suffix(".parquet")
            pyarrow.parquet.write_table(table, target)
            path.unlink()
            written.append(target)
        else:
            written.append(path)
    return written


def _write_table(store: RunStore, run: str, kind: Kind, folder: Path) -> Path | None:
    columns = _columns(store, run, kind)
    if not columns:
        return None
    path = folder / f"{kind}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*_FIRST_COLUMNS, *columns])
        writer.writeheader()
        writer.writerows(_rows(store, run, kind))
    return path


def _columns(store: RunStore, run: str, kind: Kind) -> list[str]:
    """Return the payload's names in order of first appearance."""
    names: dict[str, None] = {}
    for event in store.events(run, kind=kind):
        names.update(dict.fromkeys(event.payload))
    return list(names)


def _rows(store: RunStore, run: str, kind: Kind) -> Iterator[dict[str, Any]]:
    for event in store.events(run, kind=kind):
        yield {**_first(event), **event.payload}


def _first(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in _FIRST_COLUMNS}
