"""What the training tests run on ranks, and the small net and corpus they run it on."""

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from workbench.data import Corpus, python_source
from workbench.layout import Layout
from workbench.planner.contract import Plan
from workbench.strategies import StateBytes
from workbench.testing.ranks import Place
from workbench.training import Trainer

TOKENS = 32
BATCH = 8
#: Low enough that no spike makes rounding grow into a difference.
LEARNING_RATE = 3e-3
#: Samples of one pass: six full batches and one of three, which two ranks share 2 and 1.
PASS_SAMPLES = 6 * BATCH + 3

_PLAN = """
import sys
import workbench as wb
from workbench.hardware.presets import hardware
from workbench.layout import Layout
from workbench.model.presets import model
from workbench.planner import plan

name, layout_toml, model_args, batch = sys.argv[1:]
spec = model(name, **eval(model_args))
made = plan(spec, hardware("cpu"), Layout.from_toml(layout_toml), global_batch=int(batch))
assert "torch" not in sys.modules
print(made.to_json())
"""


def plan_without_torch(
    layout: Layout, *, name: str = "gpt", batch: int = BATCH, **numbers: int
) -> Plan:
    """Plan in a process of its own, which never loads torch."""
    small = {
        "hidden": 32,
        "num_layers": 3,
        "num_heads": 2,
        "tokens_per_sample": TOKENS,
        "vocab_size": 256,
    }
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _PLAN,
            name,
            layout.to_toml(),
            repr(small | numbers),
            str(batch),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return Plan.from_json(done.stdout)


def small_corpus(tokens: int = TOKENS) -> Corpus:
    """A little of Python's own source, so that a pass ends with an uneven batch."""
    whole = python_source(tokens_per_sample=tokens)
    return dataclasses.replace(whole, train=whole.train[: PASS_SAMPLES * tokens + 1])


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a training on one rank came to."""

    losses: tuple[float, ...]
    traffic: dict[tuple[str, str, str], tuple[int, int, int]]
    held: StateBytes
    gradient_bytes: int
    events: tuple[Any, ...]
    sizes: tuple[int, ...]


def train(
    place: Place,
    plan: Plan,
    corpus: Corpus,
    num_steps: int,
    eval_every: int = 0,
) -> Report:
    """Train from the start and report."""
    ranks = place.group.ranks(plan.layout)
    trainer = Trainer(plan, corpus, ranks, lr=LEARNING_RATE)
    sizes = tuple(
        len(
            corpus.batch(
                seed=0,
                step=step,
                global_batch=plan.global_batch,
                coordinate=trainer._coordinate,
                num_parts=trainer._num_parts,
            )[0]
        )
        for step in range(num_steps)
    )
    result = trainer.fit(num_steps, eval_every=eval_every)
    return Report(
        losses=result.losses,
        traffic=traffic(place),
        held=trainer.strategy.state_bytes(),
        gradient_bytes=gradient_bytes(trainer, corpus),
        events=tuple(place.events),
        sizes=sizes,
    )


def traffic(place: Place) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """Count, payload and sent bytes by (phase, op, axis)."""
    return {
        key: (row.count, row.payload_bytes, row.sent_bytes)
        for key, row in place.group.accounting.snapshot().items()
    }


def gradient_bytes(trainer: Trainer, corpus: Corpus) -> int:
    """Bytes of the gradients as they really lie in memory after a backward."""
    inputs, targets = corpus.batch(
        seed=0, step=0, global_batch=2, coordinate=0, num_parts=1
    )
    trainer.module(inputs).flatten(0, 1).logsumexp(-1).sum().backward()
    del targets
    gradients = trainer.strategy.local_gradients()
    total = sum(gradient.numel() * gradient.element_size() for gradient in gradients)
    trainer.strategy.reset()
    return total


def train_with_a_lost_reduction(place: Place, plan: Plan, corpus: Corpus) -> Report:
    """The mutant: the first bucket or shard of every step is never summed."""
    if plan.layout.fsdp > 1:
        whole = dist.reduce_scatter_single

        def scatter(output: torch.Tensor, input: torch.Tensor, **kwargs: Any) -> Any:
            if _lost():
                output.copy_(input.chunk(plan.layout.fsdp)[place.rank])
                return None
            return whole(output, input, **kwargs)

        dist.reduce_scatter_single = scatter
    else:
        summed = dist.all_reduce

        def reduce(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if tensor.dtype == torch.float32 and _lost():
                return None
            return summed(tensor, *args, **kwargs)

        dist.all_reduce = reduce
    calls = 0
    num_units = plan.model.number("num_layers") + 1

    def _lost() -> bool:
        nonlocal calls
        calls += 1
        return calls % num_units == 1

    return train(place, plan, corpus, 50)


def train_stopped_at_25(
    place: Place, plan: Plan, corpus: Corpus, folder: Path
) -> tuple[float, ...]:
    """Train 50 steps saving at 25, then go on from there in a new trainer."""
    ranks = place.group.ranks(plan.layout)
    first = Trainer(plan, corpus, ranks, lr=LEARNING_RATE)
    losses = first.fit(50, checkpoint_every=25, checkpoint_dir=folder).losses
    second = Trainer(plan, corpus, ranks, lr=LEARNING_RATE)
    second.load(folder / "step-000025")
    return (*losses[25:], *second.fit(25).losses)
