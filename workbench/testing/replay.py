"""A synthetic run: a real recorder and feed, told of events that no rank made.

For trying viewers without ranks: `python -m workbench.testing.replay --steps 500`.
"""

import argparse
import asyncio
import math
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path

from workbench.telemetry import Event, RunStore, encode
from workbench.telemetry.feed import FeedAddress, FeedServer
from workbench.telemetry.paths import store_path
from workbench.telemetry.recorder import Recorder
from workbench.units import MIB


class FakeSession:
    """Has what a viewer needs of a session: a store, a recorder, a feed, a run.

    Args:
        path: The run store; the user's own by default.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.store = RunStore(path or store_path())
        self.recorder = Recorder(self.store)
        self.run = ""
        self._folder = tempfile.TemporaryDirectory(prefix="wb-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = FeedServer(self.recorder, Path(self._folder.name) / "feed")
        self._wait(self._server.start())

    @property
    def feed(self) -> FeedAddress:
        """Where viewers read."""
        return self._server.address

    def begin(
        self, *, name: str, num_ranks: int, layout_toml: str = "", plan_json: str = ""
    ) -> str:
        """Begin a run and return its id."""
        self.run = self.recorder.begin_run(
            name=name,
            num_ranks=num_ranks,
            layout_toml=layout_toml,
            plan_json=plan_json,
        )
        return self.run

    def step(self, step: int, num_ranks: int, *, step_s: float = 0.1) -> None:
        """Record what a step of a small model on so many ranks would tell."""
        events = list(step_events(self.run, step, num_ranks, step_s))
        self.recorder.add(encode(events))

    def sample(self, tick: int, num_ranks: int) -> None:
        """Record one memory sample of each of so many ranks."""
        self.recorder.add(encode(list(sample_events(self.run, tick, num_ranks))))

    def end(self, status: str = "finished") -> None:
        """End the run."""
        self.recorder.end_run(self.run, status=status)
        self.run = ""

    def close(self) -> None:
        """End everything that this object began."""
        self._wait(self._server.close())
        self.recorder.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.store.close()
        self._folder.cleanup()

    def _wait(self, awaitable: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(10)


def sample_events(run: str, tick: int, num_ranks: int) -> Iterator[Event]:
    """Yield a sample of each rank: memory that breathes."""
    for rank in range(num_ranks):
        heap = 60 + 24 * abs(math.sin(tick / 3 + rank)) + rank % 5
        yield Event(
            kind="sample",
            rank=rank,
            run=run,
            cause="sampler",
            payload={
                "heap_bytes": int(heap * MIB),
                "heap_peak_bytes": int((heap + 2) * MIB),
                "heap_base_bytes": 40 * MIB,
                "weights_bytes": 4 * MIB,
                "gradients_bytes": 4 * MIB,
                "optimizer_bytes": 8 * MIB,
            },
        )


def step_events(run: str, step: int, num_ranks: int, step_s: float) -> Iterator[Event]:
    """Yield the events of one step: samples, traffic, phases, a loss that falls."""
    yield from sample_events(run, step, num_ranks)
    cause = f"step:{step}"
    for rank in range(num_ranks):
        yield Event(
            kind="collective",
            rank=rank,
            run=run,
            cause=cause,
            payload={
                "op": "all_reduce",
                "axis": "dp",
                "phase": "step",
                "count": 4,
                "payload_bytes": 4 * MIB,
                "sent_bytes": 4 * MIB,
                "seconds": step_s / 8,
            },
        )
        for name, share in (("forward", 0.3), ("backward", 0.55), ("optimizer", 0.15)):
            yield Event(
                kind="phase",
                rank=rank,
                run=run,
                cause=cause,
                payload={"name": name, "seconds": share * step_s},
            )
    values = {
        "step": step,
        "loss": 1.8 + 3.8 * math.exp(-step / 120) + 0.05 * math.sin(step * 1.7),
        "tokens_per_s": 4096 / step_s * (1 + 0.05 * math.sin(step)),
        "step_s": step_s,
    }
    if step % 50 == 0:
        values["val_loss"] = 1.95 + 3.7 * math.exp(-step / 120)
    yield Event(kind="metric", rank=0, run=run, cause=cause, payload=values)


def main() -> None:
    """Make a run of so many steps at so many steps a second, then end it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--name", default="synthetic")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--hz", type=float, default=10.0, help="samples a second")
    parser.add_argument("--samples-per-step", type=int, default=1)
    asked = parser.parse_args()
    session = FakeSession()
    try:
        session.begin(
            name=asked.name,
            num_ranks=asked.ranks,
            layout_toml=f"[layout]\ndp = {asked.ranks}",
        )
        for tick in range(asked.samples_per_step * asked.steps):
            step, rest = divmod(tick, asked.samples_per_step)
            if rest:
                session.sample(tick, asked.ranks)
            else:
                step_s = asked.samples_per_step / asked.hz
                session.step(step + 1, asked.ranks, step_s=step_s)
            time.sleep(1 / asked.hz)
        session.end()
    finally:
        session.close()


if __name__ == "__main__":
    main()
