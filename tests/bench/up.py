"""How long two ranks take to stand, from nothing and again, in seconds.

`fresh_s` starts its clock in a new Python process before anything is imported, as a
kernel would before `%load_ext`; the group is checked with a sum.
"""

import json
import statistics
import subprocess
import sys
import time

from workbench.session.connect import connect

STANDALONE = True
REPEATS = 5

FRESH = (
    "import time; began_s = time.perf_counter()\n"
    "import workbench as wb\n"
    "session = wb.connect(num_ranks=2, oversubscribe=True)\n"
    "print(time.perf_counter() - began_s)\n"
    "session.close()"
)


def fresh():
    done = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def restart(session):
    began_s = time.perf_counter()
    session.restart()
    return time.perf_counter() - began_s


def main():
    from_nothing = [fresh() for _ in range(REPEATS)]
    with connect(num_ranks=2, oversubscribe=True) as session:
        again = [restart(session) for _ in range(REPEATS)]
    import_torch = [
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import time; b = time.perf_counter(); import torch; "
                "print(time.perf_counter() - b)",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(REPEATS)
    ]
    return {
        "fresh_s": round(statistics.median(from_nothing), 2),
        "fresh_min_s": round(min(from_nothing), 2),
        "restart_s": round(statistics.median(again), 3),
        "restart_min_s": round(min(again), 3),
        "import_torch_alone_s": round(statistics.median(map(float, import_torch)), 2),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
