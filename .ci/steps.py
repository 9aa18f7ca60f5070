"""Run the test steps, each a make target, and close with one line of totals."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

# Cheapest first, so that a typo costs seconds and not the whole run.
STEPS = (
    "lint",
    "layers",
    "types",
    "unit",
    "js",
    "numerics",
    "gpu",
    "cluster",
    "notebooks",
    "browser",
    "package",
)
#: The only step whose tests may be skipped where everything else can be installed.
MAY_SKIP = "gpu"
#: pytest's "5 passed, 1 skipped in 2.1s" and node's "# pass 5" (old) or "(i) pass 5".
PYTEST = re.compile(r"^=*\s*(?=.*\bin [\d.]+s)(.*)$", re.MULTILINE)
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)")
NODE = re.compile(r"^\S (pass|fail|skipped) (\d+)$", re.MULTILINE)
WORDS = {"pass": "passed", "fail": "failed", "error": "failed", "errors": "failed"}


def main() -> int:
    """Run every step, even after one failed; return the exit status."""
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    broken: list[str] = []
    for step in STEPS:
        started = time.monotonic()
        code, output = run(step)
        counts = read_counts(output)
        if not any(counts.values()):
            counts["passed" if code == 0 else "failed"] = 1
        skipped_too_much = bool(
            os.environ.get("CI") and step != MAY_SKIP and counts["skipped"]
        )
        if code != 0 or counts["failed"] or skipped_too_much:
            broken.append(step)
            counts["failed"] = max(1, counts["failed"])
        for word, count in counts.items():
            totals[word] += count
        verdict = "FAILED" if step in broken else "ok"
        print(
            f"--- {step}: {verdict} in {time.monotonic() - started:.0f} s", flush=True
        )
    if broken:
        print(f"failed steps: {', '.join(broken)}")
    print(
        f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped"
    )
    return 1 if broken else 0


def run(step: str) -> tuple[int, str]:
    """Run one target, show its output as it comes, and keep it."""
    process = subprocess.Popen(
        ["make", "--no-print-directory", step],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=Path(__file__).parent.parent,
    )
    lines = []
    for line in process.stdout or ():
        print(line, end="", flush=True)
        lines.append(line)
    return process.wait(), "".join(lines)


def read_counts(output: str) -> dict[str, int]:
    """Add up what pytest and node say they ran."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for summary in PYTEST.findall(output):
        for number, word in COUNT.findall(summary):
            counts[WORDS.get(word, word)] += int(number)
    for word, number in NODE.findall(output):
        counts[WORDS.get(word, word)] += int(number)
    return counts


if __name__ == "__main__":
    sys.exit(main())
