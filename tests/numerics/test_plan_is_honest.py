"""What was planned without torch is what ranks then hold and send.

All layouts run on the same two ranks, once; the tests share what was measured there.
"""

import gc
import json
import subprocess
import sys
import threading
import time
from functools import cache

import pytest
import torch
import torch._dynamo  # loaded by fully_shard: once here rather than on each rank
import torch.distributed.fsdp

from workbench.layout import Layout
from workbench.model import ModelSpec, model
from workbench.planner import Plan
from workbench.sensors.memory import heap_bytes
from workbench.strategies import choose
from workbench.strategies.contract import Settings
from workbench.strategies.nets import build
from workbench.testing.ranks import Place, run_ranks

SMALL = {"num_layers": 3, "vocab_size": 250}
#: name: model family, its numbers, layout, global batch. 250 rows leave uneven shards.
CASES = {
    "dp": ("gpt", SMALL, {"dp": 2}, 32),
    "fsdp": ("gpt", SMALL, {"fsdp": 2}, 32),
    "fsdp uneven": ("gpt", {**SMALL, "vocab_size": 251, "tied": True}, {"fsdp": 2}, 32),
    "dp in parts": ("llama", SMALL, {"dp": 2, "num_microbatches": 2}, 32),
    "fsdp in parts": ("llama", SMALL, {"fsdp": 2, "num_microbatches": 2}, 32),
}
NUM_STEPS = 2

# About ten seconds on two idle cores; longer beside other jobs.
pytestmark = pytest.mark.timeout(240)


def planned_elsewhere(name: str) -> Plan:
    """Plan in a fresh process and check that it never loaded torch."""
    family, numbers, layout, batch = CASES[name]
    code = (
        "import json, sys, workbench as wb\n"
        "family, numbers, layout, batch = json.loads(sys.argv[1])\n"
        "made = wb.plan(wb.model(family, **numbers), wb.hardware('cpu'),"
        " wb.Layout(**layout), global_batch=batch)\n"
        "assert 'torch' not in sys.modules\n"
        "print(made.to_json())"
    )
    argument = json.dumps([family, numbers, layout, batch])
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        capture_output=True,
        text=True,
        check=True,
    )
    return Plan.from_json(done.stdout)


def train_all(place: Place) -> dict[str, dict]:
    """Train each case on this rank, after loading what torch loads at first use."""
    results = {}
    tiny = model("gpt", hidden=8, num_heads=2, num_layers=1)
    for name, (family, numbers, layout, batch) in CASES.items():
        steps(place, tiny, Layout(**layout), 8)
        spec = model(family, **numbers)
        results[name] = train(place, spec, Layout(**layout), batch)
    return results


def train(place: Place, spec: ModelSpec, layout: Layout, batch: int) -> dict:
    """Train a few steps; return state bytes, traffic per step and the heap's peak."""
    gc.collect()
    before, base = place.group.accounting.snapshot(), heap_bytes()
    watch = HeapWatch()
    strategy = steps(place, spec, layout, batch)
    peak = watch.stop() - base
    traffic = {}
    for (_, op, axis), now in place.group.accounting.snapshot().items():
        old = before.get((_, op, axis))
        count, payload, sent = (
            (getattr(now, field) - (getattr(old, field) if old else 0)) / NUM_STEPS
            for field in ("count", "payload_bytes", "sent_bytes")
        )
        if count >= 1:
            traffic[op, axis] = (count, payload, sent)
    return {"states": strategy.state_bytes(), "traffic": traffic, "peak": peak}


def steps(place: Place, spec: ModelSpec, layout: Layout, batch: int):
    """Build a net, train it and return its strategy."""
    ranks = place.group.ranks(layout, run="", device=torch.device("cpu"))
    with torch.device("meta"):
        net = build(spec)
    settings = Settings(nominal_tokens=batch * spec.tokens_per_sample)
    strategy = choose.build(layout, settings)
    strategy.prepare(net, layout, ranks)
    shape = batch // layout.num_ranks, spec.tokens_per_sample
    tokens, targets = torch.randint(0, spec.number("vocab_size"), (2, *shape)).unbind()
    for _ in range(NUM_STEPS):
        strategy.step((tokens, targets), learning_rate=1e-3)
    return strategy


class HeapWatch:
    """Remembers the highest live heap, looking 2,000 times a second."""

    def __init__(self) -> None:
        self.peak = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self) -> None:
        while not self.stopping.is_set():
            self.peak = max(self.peak, heap_bytes())
            time.sleep(0.0005)

    def stop(self) -> int:
        self.stopping.set()
        self.thread.join()
        return self.peak


@cache
def measured() -> list[dict[str, dict]]:
    return run_ranks(train_all, num_ranks=2, timeout_s=200)


def both(name: str) -> tuple[Plan, list[dict]]:
    return planned_elsewhere(name), [rank[name] for rank in measured()]


@pytest.mark.parametrize("name", CASES)
def test_states_are_the_tensors_bytes(name):
    plan, ranks = both(name)

    for entry, rank in zip(plan.memory, ranks, strict=True):
        assert entry.by_category["weights"] == rank["states"].weights
        assert entry.by_category["gradients"] == rank["states"].gradients
        assert entry.by_category["optimizer"] == rank["states"].optimizer


@pytest.mark.parametrize("name", CASES)
def test_traffic_is_what_the_group_counted(name):
    plan, ranks = both(name)
    planned: dict[tuple[str, str], tuple[float, ...]] = {}
    for comm in plan.comm:
        old = planned.get((comm.op, comm.axis), (0, 0, 0))
        new = (comm.count, comm.payload_bytes, comm.sent_bytes)
        planned[comm.op, comm.axis] = tuple(
            a + b for a, b in zip(old, new, strict=True)
        )

    for rank in ranks:
        assert rank["traffic"] == planned


@pytest.mark.parametrize("name", CASES)
def test_the_peak_of_the_heap_is_within_ten_percent(name):
    plan, ranks = both(name)

    # The issue's own bound. First nets of a process: -4.0 to +1.5 percent; later ones
    # find 2 to 4 MB of buffers of torch and gloo made already.
    for entry, rank in zip(plan.memory, ranks, strict=True):
        assert entry.peak_bytes == pytest.approx(rank["peak"], rel=0.1)
