"""What the monitor costs the browser: 256 ranks at 10 Hz on the dashboard.

Opens the dashboard in headless Chromium on a synthetic run of another process. Prints
the main thread's share of a core, the growth of the JavaScript heap after collection,
and how many updates arrived. Ten minutes: `python -m tests.bench.monitor_live 600`.

A step takes a second; memory is sampled at 10 Hz.

    python -m tests.bench.monitor_live [seconds]
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser import tools

NUM_RANKS = 256
WARM_UP_S = 10


def main(seconds: int = 60) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = tools.environment(folder, folder / "home")
        env["WORKBENCH_TOKEN"] = tools.TOKEN
        port = tools.free_port()
        arguments = ["--ranks", NUM_RANKS, "--hz", 10, "--samples-per-step", 10]
        arguments += ["--steps", seconds + 300]
        run = subprocess.Popen(
            tools.python("-m", "workbench.testing.replay", *map(str, arguments)),
            env=env,
        )
        try:
            with tools.serving(
                tools.python("-m", "workbench", "dashboard", f"--port={port}"),
                port=port,
                ready=f"http://127.0.0.1:{port}/",
                env=env,
                cwd=folder,
                log=folder / "log",
            ) as url:
                return watch(url, seconds)
        finally:
            run.kill()
            run.wait()


def watch(url: str, seconds: int) -> dict[str, Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{url}/?token={tools.TOKEN}")
        page.wait_for_selector(".wb-heat", state="attached", timeout=240_000)
        page.wait_for_timeout(WARM_UP_S * 1000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = figures(page, session)
        page.wait_for_timeout(seconds * 1000)
        after = figures(page, session)
        browser.close()
    return {
        "ranks": NUM_RANKS,
        "seconds": seconds,
        "main_thread_share": (after["task_s"] - before["task_s"]) / seconds,
        "heap_growth_mb": (after["heap_bytes"] - before["heap_bytes"]) / 1e6,
        "updates_per_s": (after["seq"] - before["seq"]) / seconds,
        "load_average": os.getloadavg()[0],
    }


def figures(page: Any, session: Any) -> dict[str, float]:
    session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    named = {metric["name"]: metric["value"] for metric in metrics}
    return {
        "task_s": named["TaskDuration"],
        "heap_bytes": named["JSHeapUsedSize"],
        "seq": page.evaluate(tools.STATE)["seq"],
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:])), indent=2))
