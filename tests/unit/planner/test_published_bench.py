"""The accuracy benchmark scores any folder of rows in its columns."""

import csv
import json
import sys

import pytest

from tests.bench.published import __main__ as bench
from tests.bench.published.score import Pair, is_calibration, rank_correlation, regret

COLUMNS = [
    "row_id",
    "source",
    "model",
    "params_b",
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "vocab",
    "seq_len",
    "gpu",
    "gpu_mem_gb",
    "n_gpus",
    "gpus_per_node",
    "interconnect",
    "tp",
    "sp",
    "pp",
    "vpp",
    "schedule",
    "cp",
    "ep",
    "etp",
    "dp",
    "dp_sharding",
    "mbs",
    "grad_accum",
    "gbs",
    "precision",
    "recompute",
    "attn_kernel",
    "offload",
    "step_time_s",
    "mem_gb",
    "mem_kind",
    "oom",
    "framework",
    "notes",
]
ROW = {
    "source": "made up",
    "model": "GPT 7B",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "vocab": "51200",
    "seq_len": "2048",
    "gpu": "A100-SXM-80GB",
    "n_gpus": "8",
    "gpus_per_node": "8",
    "tp": "8",
    "pp": "1",
    "mbs": "4",
    "gbs": "64",
    "precision": "bf16",
    "recompute": "none",
    "step_time_s": "10",
    "oom": "0",
    "framework": "Megatron-LM",
}


def scored_folder(folder, rows, monkeypatch):
    with (folder / "rows.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    out = folder / "out.json"
    words = ["published", "--data", str(folder), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    bench.main()
    return json.loads(out.read_text())["files"]["rows"]


def held_out_ids(count: int) -> list[str]:
    names = (f"row-{number}" for number in range(1000))
    return [name for name in names if not is_calibration({"row_id": name})][:count]


def test_rows_are_scored_and_refused_with_a_reason(tmp_path, monkeypatch):
    good, bad = held_out_ids(2)
    rows = [{**ROW, "row_id": good}, {**ROW, "row_id": bad, "n_gpus": "12"}]

    found = scored_folder(tmp_path, rows, monkeypatch)

    assert found["rows"] == 1
    assert found["refused"] == {"tp x pp x cp does not divide the GPUs": 1}
    assert found["step_time"]["n"] == 1


def test_what_did_not_fit_is_scored_apart(tmp_path, monkeypatch):
    fits, over = held_out_ids(2)
    huge = {**ROW, "row_id": over, "oom": "1", "tp": "1", "gbs": "64", "mbs": "8"}

    found = scored_folder(tmp_path, [{**ROW, "row_id": fits}, huge], monkeypatch)

    assert found["oom"] == {
        "n": 2,
        "accuracy_pct": 100.0,
        "false_fits_pct": 0.0,
        "false_oom_pct": 0.0,
    }


def test_the_calibration_tenth_is_left_out(tmp_path, monkeypatch):
    names = [f"row-{number}" for number in range(100)]
    fitted = next(name for name in names if is_calibration({"row_id": name}))
    rows = [{**ROW, "row_id": name} for name in (fitted, *held_out_ids(1))]

    assert scored_folder(tmp_path, rows, monkeypatch)["rows"] == 1


def pairs(*values: tuple[float, float]) -> list[Pair]:
    return [Pair(row=ROW, measured=m, predicted=p) for m, p in values]


def test_regret_is_what_the_chosen_layout_loses():
    assert regret(pairs((10, 2), (11, 1), (12, 3))) == pytest.approx(10.0)


def test_order_alone_makes_the_rank_correlation():
    assert rank_correlation(pairs((1, 10), (2, 20), (3, 90))) == 1.0
    assert rank_correlation(pairs((1, 90), (2, 20), (3, 10))) == -1.0
