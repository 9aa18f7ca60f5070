"""What telemetry costs: the same training steps with it on and off, in pairs.

On is all that a session runs: accounting and in-flight table, memory sampler, events
of every step, and a thread that drains and encodes them ten times a second.
Prints the median ratio on / off of CPU time and wall time with a bootstrap interval.

    python -m tests.bench.telemetry_cost
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch.distributed as dist

from workbench.data import python_source
from workbench.hardware.presets import hardware
from workbench.layout import Layout
from workbench.model.presets import model
from workbench.planner import plan
from workbench.sensors import MemorySampler
from workbench.telemetry.buffer import EventBuffer
from workbench.telemetry.codec import encode
from workbench.testing.ranks import Place, run_ranks
from workbench.training import Trainer, warm

STANDALONE = True
PAIRS = 60
STEPS_PER_BLOCK = 4


class Telemetry:
    """Switches everything that observes a rank on and off."""

    def __init__(self, place: Place, trainer: Trainer, buffer: EventBuffer) -> None:
        self._groups = place.group._groups
        self._observers = [group._observers for group in self._groups]
        self._trainer = trainer
        self._tell = trainer._tell_step
        self._buffer = buffer

    @contextmanager
    def on(self) -> Iterator[None]:
        sampler = MemorySampler(
            lambda payload: self._trainer.ranks.emit("sample", cause="timer", **payload)
        )
        stop = threading.Event()
        shipper = threading.Thread(target=self._ship, args=(stop,))
        sampler.start()
        shipper.start()
        yield
        sampler.stop()
        stop.set()
        shipper.join()

    def _ship(self, stop: threading.Event) -> None:
        while not stop.wait(0.1):
            events, _ = self._buffer.drain()
            encode(events)

    @contextmanager
    def off(self) -> Iterator[None]:
        for group in self._groups:
            group._observers = ()
        self._trainer._tell_step = lambda *_: None
        yield
        self._trainer._tell_step = self._tell
        for group, observers in zip(self._groups, self._observers, strict=True):
            group._observers = observers


def measure(place: Place) -> list[dict[str, tuple[float, float]]]:
    warm()
    spec = model("gpt", hidden=128, num_layers=4, num_heads=4, tokens_per_sample=128)
    planned = plan(spec, hardware("cpu"), Layout(dp=2), global_batch=32)
    buffer = EventBuffer()
    place.group._record = buffer.record
    trainer = Trainer(
        planned, python_source(tokens_per_sample=128), place.group.ranks(planned.layout)
    )
    telemetry = Telemetry(place, trainer, buffer)
    trainer.fit(3)
    pairs = []
    for number in range(PAIRS):
        kinds = {"on": telemetry.on, "off": telemetry.off}
        order = ("on", "off") if number % 2 else ("off", "on")
        pairs.append({kind: _block(trainer, kinds[kind]) for kind in order})
    return pairs


def _block(trainer: Trainer, switched: Any) -> tuple[float, float]:
    """CPU and wall seconds of a few steps."""
    with switched():
        dist.barrier()
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            trainer._one_step()
        return time.process_time() - cpu_s, time.perf_counter() - wall_s


def median_with_interval(ratios: np.ndarray) -> dict[str, float]:
    generator = np.random.default_rng(0)
    drawn = generator.choice(ratios, size=(10_000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {
        "median_ratio": round(float(np.median(ratios)), 4),
        "low_95": round(float(low), 4),
        "high_95": round(float(high), 4),
    }


def main() -> dict[str, Any]:
    pairs = run_ranks(measure, timeout_s=900)[0]
    result: dict[str, Any] = {"pairs": len(pairs), "steps_per_block": STEPS_PER_BLOCK}
    for place, name in enumerate(("cpu", "wall")):
        ratios = np.array([pair["on"][place] / pair["off"][place] for pair in pairs])
        result[name] = median_with_interval(ratios)
    return result


if __name__ == "__main__":
    print(json.dumps({"bench": "telemetry_cost"} | main()))
