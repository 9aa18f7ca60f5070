"""Seconds of a fresh interpreter for `import workbench` and one plan, as JSON.

    python -m tests.bench.plan_latency --json OUT

The median of 15 runs less the median of an empty interpreter, in interleaved pairs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

PLAN = (
    "import workbench as wb\n"
    "wb.plan(wb.model('llama3-70b'), wb.hardware('h100', num_nodes=8),"
    " wb.Layout(fsdp=8, tp=8, precision='bf16'), global_batch=64)"
)
NUM_PAIRS = 15


def run_s(code: str) -> float:
    """Return wall seconds of a fresh interpreter running some code."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    out = parser.parse_args().json
    pairs = [(run_s("pass"), run_s(PLAN)) for _ in range(NUM_PAIRS)]
    empty, planned = (statistics.median(side) for side in zip(*pairs, strict=True))
    result = {
        "interpreter_s": round(empty, 4),
        "import_and_plan_s": round(planned - empty, 4),
        "whole_process_s": round(planned, 4),
        "goal_s": 0.3,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
