"""What the monitor costs the notebook's kernel, per update at 10 Hz.

An update is one change of the feed, from its bytes to the widget's message: read,
applied to the picture, turned into points and words, packed. Prints CPU milliseconds
(process time, median and 95th percentile), bytes from the recorder to the kernel and
bytes from the kernel to the browser.

    python -m tests.bench.monitor_cost
"""

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from workbench_widgets.monitor.widget import pack

from workbench.notebook import views
from workbench.telemetry.picture import Picture
from workbench.telemetry.recorder import Recorder
from workbench.telemetry.store import RunStore
from workbench.testing.replay import step_events

STANDALONE = True
UPDATES = 400
#: Words and bars are renewed at 2 Hz, points at 10 Hz.
UPDATES_PER_PANELS = 5


def main() -> dict[str, Any]:
    return {str(ranks): measure(ranks) for ranks in (8, 256)}


def measure(num_ranks: int) -> dict[str, float]:
    """Return the cost of an update of a run on so many ranks."""
    run = a_run(num_ranks)
    source = Picture(started_s=run.started_s)
    viewer = Picture(started_s=run.started_s)
    cpu_ms, feed_bytes, widget_bytes = [], [], []
    for step in range(UPDATES):
        for event in step_events(run.id, step, num_ranks, 0.1):
            source.fold(event)
        changed = source.changes(full=step % UPDATES_PER_PANELS == 0)
        frame = json.dumps(changed, separators=(",", ":"))
        began_s = time.process_time()
        message, buffers = update(run, viewer, frame, step)
        body = json.dumps(message)
        cpu_ms.append((time.process_time() - began_s) * 1e3)
        feed_bytes.append(len(frame))
        widget_bytes.append(len(body) + sum(map(len, buffers)))
    return {
        "cpu_ms_mean": statistics.mean(cpu_ms),
        "cpu_ms_median": statistics.median(cpu_ms),
        "cpu_ms_p95": statistics.quantiles(cpu_ms, n=20)[-1],
        "feed_bytes_mean": statistics.mean(feed_bytes),
        "widget_bytes_mean": statistics.mean(widget_bytes),
    }


def update(run: Any, viewer: Picture, frame: str, step: int) -> Any:
    changed = json.loads(frame)
    viewer.apply(changed)
    panels = None
    if step % UPDATES_PER_PANELS == 0:
        shown = views.Shown(
            run=run,
            picture=viewer,
            planned=None,
            live=True,
            recording="",
            now_s=time.time(),
        )
        panels = views.panels(shown)
    made = views.changes(changed, num_ranks=run.num_ranks, panels=panels)
    return pack("append", step, made)


def a_run(num_ranks: int) -> Any:
    with (
        tempfile.TemporaryDirectory() as folder,
        RunStore(Path(folder) / "runs.db") as store,
        Recorder(store) as recorder,
    ):
        return store.run(recorder.begin_run(name="bench", num_ranks=num_ranks))


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
