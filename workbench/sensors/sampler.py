"""A thread that samples memory: peaks at a high rate, records at a low one."""

import threading
import time
from collections.abc import Callable
from typing import Any

from workbench.sensors.memory import Heap, device_memory, rss_bytes

#: CPU seconds of this process between looks at the heap for its peak: without them the
#: heap does not change. Beside a training step a look costs 0.12 ms of CPU (the thread
#: wakes to cold caches), so looking is a quarter of a percent of what the process does, however
#: busy the machine is; the same peak comes round in every step.
LOOK_EVERY_CPU_S = 0.05
#: An idle process is looked at this often, and stopping waits no longer.
_LONGEST_PAUSE_S = 0.1


class MemorySampler:
    """Emits one sample per interval with the highest heap seen in between.

    Args:
        record_sample: Takes the payload of a `sample` event; must not block.
        interval_s: Seconds between samples.
        look_every_cpu_s: CPU seconds of this process between looks for the peak.
    """

    def __init__(
        self,
        record_sample: Callable[[dict[str, Any]], None],
        interval_s: float = 0.1,
        look_every_cpu_s: float = LOOK_EVERY_CPU_S,
    ) -> None:
        self._record_sample = record_sample
        self._interval_s = interval_s
        self._look_every_cpu_s = look_every_cpu_s
        self._heap = Heap()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="workbench-memory", daemon=True
        )
        #: The highest live heap since the sampler was made, or since `reset_peak`.
        self.peak_bytes = 0

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """End; the last sample is out when this returns."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def reset_peak(self) -> None:
        """Forget the peak so far."""
        self.peak_bytes = 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._record_sample(self._sample())

    def _sample(self) -> dict[str, Any]:
        """Watch the heap for one interval and return what it showed."""
        until_s = time.monotonic() + self._interval_s
        live = self._look()
        interval_peak = live
        pause_s = self._look_every_cpu_s
        while not self._stopping.is_set():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            cpu_s = time.process_time()
            time.sleep(min(pause_s, left_s))
            live = self._look()
            interval_peak = max(interval_peak, live)
            used_s = time.process_time() - cpu_s
            pause_s = _next_pause_s(pause_s, used_s, self._look_every_cpu_s)
        device = device_memory()
        return {
            "heap_bytes": live or None,
            "heap_peak_bytes": interval_peak or None,
            "rss_bytes": rss_bytes(),
            "device_bytes": None if device is None else device.live_bytes,
            "device_peak_bytes": None if device is None else device.peak_bytes,
        }

    def _look(self) -> int:
        """Return the live heap, 0 where it cannot be read, and keep the highest."""
        live = self._heap.live_bytes() or 0
        self.peak_bytes = max(self.peak_bytes, live)
        return live


def _next_pause_s(pause_s: float, used_cpu_s: float, wanted_cpu_s: float) -> float:
    """Return the pause that lasts as much CPU time as lies between two looks.

    >>> _next_pause_s(0.04, 0.025, 0.05), _next_pause_s(0.02, 0.0, 0.05)
    (0.08, 0.1)
    """
    wanted_s = pause_s * wanted_cpu_s / max(used_cpu_s, 1e-4)
    return min(max(wanted_s, wanted_cpu_s / 4), _LONGEST_PAUSE_S)
