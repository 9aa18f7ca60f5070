import csv
import dataclasses
import json

import pytest

from tests.unit.telemetry.test_store import RUN
from workbench.errors import StoreError
from workbench.telemetry.export import write_csv, write_parquet


@pytest.fixture
def filled(store, metric, sample):
    store.add_run(RUN)
    store.add_events(
        [
            metric(1, loss=5.0),
            metric(2, loss=1 / 3, val_loss=4.0),
            sample(7.5, rank=1, heap_bytes=9, device_bytes=None),
        ]
    )
    return store


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_kind_becomes_a_table(filled, tmp_path):
    written = write_csv(filled, "r", tmp_path / "out")

    assert [p.name for p in written] == ["run.json", "sample.csv", "metric.csv"]
    assert read(tmp_path / "out" / "sample.csv")[0]["heap_bytes"] == "9"


def test_numbers_come_back_exactly(filled, tmp_path):
    write_csv(filled, "r", tmp_path)

    losses = [float(row["loss"]) for row in read(tmp_path / "metric.csv")]

    assert losses == [5.0, 1 / 3]


def test_what_was_not_measured_is_empty(filled, tmp_path):
    write_csv(filled, "r", tmp_path)

    assert read(tmp_path / "sample.csv")[0]["device_bytes"] == ""
    assert read(tmp_path / "metric.csv")[0]["val_loss"] == ""


def test_the_run_itself_is_written_beside(filled, tmp_path):
    write_csv(filled, "r", tmp_path)

    assert json.loads((tmp_path / "run.json").read_text()) == dataclasses.asdict(RUN)


def test_an_unknown_run_writes_nothing(filled, tmp_path):
    with pytest.raises(StoreError, match="no run"):
        write_csv(filled, "../../etc", tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_a_file_is_refused(filled, tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot be written"):
        write_csv(filled, "r", tmp_path / "file")


def test_parquet_says_what_it_needs(filled, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(StoreError, match="pyarrow"):
        write_parquet(filled, "r", tmp_path)
