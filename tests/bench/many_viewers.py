"""What viewers cost the process that records, and how far behind live they are.

One process records a synthetic run at 10 Hz. Windows without viewers and with 20 viewer
processes alternate; in the last window five of the viewers are killed. Prints the
recording process's CPU seconds per window, what a viewer adds to it as a share of one
core, and the largest distance from live that any viewer reports.

    python -m tests.bench.many_viewers
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

NUM_VIEWERS = 20
NUM_RANKS = 8
WINDOW_S = 10.0
PAIRS = 3

#: Follows the newest run; prints, each second, the seconds since what it last heard.
VIEWER = """
import time
from workbench.notebook.follow import Follower
follower = Follower()
follower.start(lambda changed: None)
while True:
    time.sleep(1)
    shown = follower.shown()
    print(time.time() - max(r.wall_s for r in shown.picture.ranks.values()), flush=True)
"""


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "WORKBENCH_HOME": folder, "OMP_NUM_THREADS": "1"}
        recording = start_recording(env, Path(folder))
        try:
            return measure(psutil.Process(recording.pid), env)
        finally:
            recording.kill()
            recording.wait()


def measure(recording: psutil.Process, env: dict[str, str]) -> dict[str, Any]:
    alone, viewed, lags, recovered = [], [], [], True
    for pair in range(PAIRS):
        alone.append(cpu_of_window(recording))
        viewers = [start_viewer(env) for _ in range(NUM_VIEWERS)]
        try:
            for viewer in viewers:
                viewer.stdout.readline()
            viewed.append(cpu_of_window(recording))
            if pair == PAIRS - 1:
                recovered = survives_killing(viewers, recording)
            lags += [newest_lag(viewer) for viewer in viewers if viewer.poll() is None]
        finally:
            for viewer in viewers:
                viewer.kill()
                viewer.wait()
                viewer.stdout.close()
    added = statistics.median(viewed) - statistics.median(alone)
    return {
        "viewers": NUM_VIEWERS,
        "cpu_s_per_window_alone": alone,
        "cpu_s_per_window_viewed": viewed,
        "added_share_of_a_core": added / WINDOW_S,
        "largest_lag_s": max(lags),
        "others_go_on_after_five_are_killed": recovered,
    }


def start_recording(env: dict[str, str], home: Path) -> subprocess.Popen[str]:
    arguments = ["--ranks", NUM_RANKS, "--steps", 100_000, "--hz", 10]
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench.testing.replay", *map(str, arguments)],
        env=env,
        text=True,
    )
    while not (home / "runs.db").exists():
        time.sleep(0.1)
    time.sleep(2)
    return process


def start_viewer(env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", VIEWER], env=env, stdout=subprocess.PIPE, bufsize=0
    )


def cpu_of_window(process: psutil.Process) -> float:
    before = sum(process.cpu_times()[:2])
    time.sleep(WINDOW_S)
    return sum(process.cpu_times()[:2]) - before


def survives_killing(viewers: list[Any], recording: psutil.Process) -> bool:
    for viewer in random.sample(viewers, 5):
        viewer.send_signal(signal.SIGKILL)
        viewer.wait()
    time.sleep(2)
    left = [viewer for viewer in viewers if viewer.poll() is None]
    return recording.is_running() and max(map(newest_lag, left)) < 2.0


def newest_lag(viewer: Any) -> float:
    """Return the newest line that a viewer has printed."""
    while not (lines := os.read(viewer.stdout.fileno(), 1 << 16).split()):
        continue
    return float(lines[-1])


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
