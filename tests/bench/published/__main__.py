"""Score the planner on a folder of published measurements.

    python -m tests.bench.published --data FOLDER --json OUT

Every CSV of the common schema is asked row by row. Rows of the calibration tenth (see
`score.is_calibration`) are left out of the score. Constants come from the presets of
`hardware` and `planner.profiles`; nothing is fitted here.
"""

import argparse
import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.bench.published.judge import Answer, judged
from tests.bench.published.mcore import scored_mcore
from tests.bench.published.rows import Refused, Row, question
from tests.bench.published.score import Pair, constant_floor, is_calibration, summary


def main() -> None:
    """Score every file of the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", help="one file's stem")
    arguments = parser.parse_args()
    files = {}
    for path in sorted(arguments.data.glob("*.csv")):
        if arguments.only not in {None, path.stem}:
            continue
        with path.open(newline="") as handle:
            rows = list(csv.DictReader(handle))
        if rows and "mem_allocated_bytes" in rows[0]:
            files[path.stem] = scored_mcore(rows)
            print(path.stem, json.dumps(files[path.stem]))
        elif rows and {"n_gpus", "tp", "seq_len", "oom"} <= set(rows[0]):
            files[path.stem] = scored(rows)
            print(path.stem, json.dumps(files[path.stem]))
    text = json.dumps({"files": files}, indent=1)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def scored(rows: list[Row]) -> dict[str, Any]:
    """Ask every row of a file and return its scores."""
    refused: Counter[str] = Counter()
    asked: list[tuple[Row, Answer]] = []
    for row in rows:
        if is_calibration(row) or not _has_answer(row):
            continue
        try:
            asked.append((row, judged(question(row))))
        except Refused as reason:
            refused[str(reason)] += 1
    sources = sorted({row["source"] for row, _ in asked})
    return {
        "rows": len(asked),
        "refused": dict(refused),
        "step_time": _step_time(asked),
        "step_time_by_source": {
            source: _step_time([(r, a) for r, a in asked if r["source"] == source])
            for source in sources
            if len(sources) > 1
        },
        "memory": _memory(asked),
        "oom": _oom(asked),
    }


def _has_answer(row: Row) -> bool:
    return bool(row.get("step_time_s") or row.get("mem_gb") or row.get("oom") == "1")


def _step_time(asked: list[tuple[Row, Answer]]) -> dict[str, Any] | None:
    timed = [(r, j) for r, j in asked if r["step_time_s"] and r["oom"] != "1"]
    pairs = [
        Pair(row=r, measured=float(r["step_time_s"]), predicted=j.step_s)
        for r, j in timed
    ]
    if not pairs:
        return None
    return summary(pairs, constant_floor(pairs, [j.ideal_s for _, j in timed]))


def _memory(asked: list[tuple[Row, Answer]]) -> dict[str, Any] | None:
    known = [(r, j) for r, j in asked if r["mem_gb"]]
    pairs = [
        Pair(row=r, measured=_bytes(r), predicted=_asked_for(r, j)) for r, j in known
    ]
    return summary(pairs, []) if pairs else None


def _asked_for(row: Row, answer: Answer) -> float:
    """Return the bytes that a row's column means: of tensors, or of the pool."""
    reserved = "reserved" in row.get("mem_kind", "")
    return answer.pool_bytes if reserved else answer.peak_bytes


def _bytes(row: Row) -> float:
    unit = 2**30 if "GiB" in row.get("mem_kind", "") else 1e9
    return float(row["mem_gb"]) * unit


def _oom(asked: list[tuple[Row, Answer]]) -> dict[str, Any] | None:
    """Score fits or not, where a file has rows that did not fit."""
    known = [(r["oom"] == "1", not j.fits) for r, j in asked if r["oom"] in {"0", "1"}]
    if not any(over for over, _ in known):
        return None
    right = sum(over == said for over, said in known)
    return {
        "n": len(known),
        "accuracy_pct": round(100 * right / len(known), 2),
        "false_fits_pct": _share(known, over=True),
        "false_oom_pct": _share(known, over=False),
    }


def _share(known: list[tuple[bool, bool]], *, over: bool) -> float:
    """Return the share of all rows that are so and were called the opposite."""
    wrong = sum(1 for was, said in known if was == over and said != over)
    return round(100 * wrong / len(known), 2)


if __name__ == "__main__":
    main()
