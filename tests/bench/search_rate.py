"""Layouts per second of a 1,024-GPU search on one core, as JSON.

    python -m tests.bench.search_rate --json OUT

Only layouts whose memory, traffic and step time were fully evaluated count. 1,000 random
ones are planned one by one and must agree to 1e-9.
"""

import argparse
import json
import os
import random
import time
from pathlib import Path

from workbench.hardware import hardware
from workbench.model import model
from workbench.planner import plan
from workbench.planner.numbers import model_numbers
from workbench.planner.profiles import profile
from workbench.planner.search import judge_all, search
from workbench.planner.space import space


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--samples", type=int, default=1000)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    result = rate(arguments.samples) | large()
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def rate(num_samples: int) -> dict[str, float]:
    """Judge every layout of Llama-3 70B on 1,024 H100; check some against `plan`."""
    spec, cluster = model("llama3-70b"), hardware("h100", num_nodes=128)
    found = space(spec, 1024, global_batch=2048, precision="bf16")
    numbers = model_numbers(spec, profile("megatron-core"))
    best_s, peak, seconds = float("inf"), None, None
    for _ in range(3):
        begin = time.process_time()
        peak, seconds = judge_all(numbers, found, cluster)
        best_s = min(best_s, time.process_time() - begin)
    worst = 0.0
    for index in random.Random(0).sample(range(len(found)), num_samples):
        one = plan(
            spec,
            cluster,
            found.layout(index),
            global_batch=2048,
            profile="megatron-core",
        )
        worst = max(
            worst,
            abs(one.step_time.total_s / seconds[index] - 1),
            abs(one.peak.peak_bytes / int(peak[index]) - 1),
        )
    return {
        "layouts": len(found),
        "layouts_per_second": round(len(found) / best_s),
        "checked": num_samples,
        "worst_difference": worst,
    }


def large() -> dict[str, float]:
    """Time a whole search for a 405B model on 16,384 GPUs."""
    begin = time.process_time()
    found = search(
        model("llama3.1-405b"), hardware("h100", num_nodes=2048), global_batch=16384
    )
    return {
        "search_405b_s": round(time.process_time() - begin, 3),
        "search_405b_layouts": found.num_judged,
    }


if __name__ == "__main__":
    main()
