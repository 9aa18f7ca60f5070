"""The layouts that are held to the reference, and what a rank reports of one."""

import contextlib
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from tests.numerics.training_runs import TOKENS, small_corpus
from workbench.hardware.presets import hardware
from workbench.layout import Axis, Layout
from workbench.model.presets import model
from workbench.planner import plan
from workbench.planner.case import case_of
from workbench.planner.contract import Plan
from workbench.planner.numbers import model_numbers
from workbench.planner.profiles import profile
from workbench.planner.traffic import messages, sent_by
from workbench.testing.ranks import Place, run_ranks
from workbench.training import Trainer

#: Every axis alone, then compositions; each with its ways of running.
ALONE = {
    "dp": Layout(dp=2),
    "dp, micro-batches": Layout(dp=2, num_microbatches=2),
    "dp, recompute": Layout(dp=2, recompute="full"),
    "dp, zero 1": Layout(dp=2, zero=1, num_microbatches=2),
    "dp, zero 2": Layout(dp=2, zero=2),
    "fsdp": Layout(fsdp=2),
    "fsdp, micro-batches": Layout(fsdp=2, num_microbatches=2),
    "fsdp, recompute": Layout(fsdp=2, recompute="full"),
    "tp": Layout(tp=2),
    "tp, sequence": Layout(tp=2, sp=True),
    "tp, sequence, recompute": Layout(tp=2, sp=True, recompute="full"),
    "pp, gpipe": Layout(pp=2, schedule="gpipe", num_microbatches=2),
    "pp, 1f1b": Layout(pp=2, schedule="1f1b", num_microbatches=4),
    "pp, interleaved": Layout(
        pp=2, schedule="interleaved", chunks=2, num_microbatches=2
    ),
    "pp, ends as layers": Layout(pp=4, num_microbatches=4, ends_as_layers=True),
    "cp, ring": Layout(cp=2, context="ring"),
    "cp, all_gather": Layout(cp=2, context="all_gather"),
    "cp, ulysses": Layout(cp=2, context="ulysses"),
}
COMPOSED = {
    "dp x fsdp": Layout(dp=2, fsdp=2),
    "dp x tp": Layout(dp=2, tp=2),
    "fsdp x tp": Layout(fsdp=2, tp=2),
    "pp x dp": Layout(pp=2, dp=2, num_microbatches=2),
    "pp x fsdp": Layout(pp=2, fsdp=2, num_microbatches=2),
    "pp x tp": Layout(pp=2, tp=2, num_microbatches=2),
    "pp x tp, sequence": Layout(pp=2, tp=2, sp=True, num_microbatches=2),
    "pp x cp": Layout(pp=2, cp=2, num_microbatches=2),
    "dp x cp": Layout(dp=2, cp=2),
    "fsdp x cp": Layout(fsdp=2, cp=2),
    "cp x tp": Layout(cp=2, tp=2),
    "cp x tp, sequence": Layout(cp=2, tp=2, sp=True, context="ulysses"),
}
#: Eight and sixteen ranks: `make soak`.
LARGE = {
    "pp x dp x fsdp": Layout(pp=2, dp=2, fsdp=2, num_microbatches=2),
    "pp x fsdp x tp": Layout(pp=2, fsdp=2, tp=2, num_microbatches=2),
    "dp x fsdp x tp": Layout(dp=2, fsdp=2, tp=2),
    "fsdp x cp x tp": Layout(fsdp=2, cp=2, tp=2),
    "pp x dp x fsdp x tp": Layout(pp=2, dp=2, fsdp=2, tp=2, num_microbatches=2),
}
LAYOUTS = ALONE | COMPOSED | LARGE

NUM_LAYERS = 4
BATCH = 8
LEARNING_RATE = 3e-3


#: Count, payload and sent bytes by operation and axis.
Traffic = dict[tuple[str, str], tuple[int, int, int]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one rank's training came to."""

    losses: tuple[float, ...]
    val_loss: float
    text: str
    held: tuple[int, int, int]
    traffic: Traffic


def planned(layout: Layout, family: str = "gpt") -> Plan:
    """Plan the small net on a host with ranks enough."""
    spec = model(
        family,
        hidden=32,
        num_layers=NUM_LAYERS,
        num_heads=4,
        tokens_per_sample=TOKENS,
        vocab_size=256,
    )
    host = hardware("cpu")
    wide = replace(host, groups=(replace(host.groups[0], devices_per_node=16),))
    return plan(spec, wide, layout, global_batch=BATCH)


def outcome(
    place: Place, made: Plan, num_steps: int, mutate: Callable[[], None] | None
) -> Outcome:
    """Train, then evaluate and continue a prompt."""
    if mutate is not None:
        mutate()
    trainer = Trainer(
        made, small_corpus(), place.group.ranks(made.layout), lr=LEARNING_RATE
    )
    with contextlib.redirect_stdout(io.StringIO()):
        losses = trainer.fit(num_steps).losses
    held = trainer.strategy.state_bytes()
    return Outcome(
        losses=losses,
        val_loss=trainer.evaluate(),
        text=trainer.complete("def f(", 4, temperature=0),
        held=(held.weights, held.gradients, held.optimizer),
        traffic=_per_step(place),
    )


def _per_step(place: Place) -> Traffic:
    """Traffic of the first step, whose batch is even."""
    told: Traffic = {}
    for event in place.events:
        if event.kind == "collective" and event.cause == "step:1":
            row = event.payload
            if row["phase"] == "step":
                told[row["op"], row["axis"]] = (
                    row["count"],
                    row["payload_bytes"],
                    row["sent_bytes"],
                )
    return told


def planned_traffic(made: Plan, rank: int) -> Traffic:
    """What the planner's formulas say of one rank, whichever stage it is on."""
    layout = made.layout
    place = layout.coordinates(rank)
    case = case_of(
        layout,
        global_batch=made.global_batch,
        stage=place.get(Axis.PP, 0),
        shard=place.get(Axis.FSDP, 0),
    )
    rows: Traffic = {}
    for message in messages(model_numbers(made.model, profile("workbench")), case):
        if message.count:
            before = rows.get((message.op, message.axis), (0, 0, 0))
            now = (
                message.count,
                message.count * message.each,
                sent_by(message, case, "gloo"),
            )
            rows[message.op, message.axis] = tuple(
                int(a + b) for a, b in zip(before, now, strict=True)
            )
    return rows


def run_layout(
    layout: Layout,
    num_steps: int,
    *,
    family: str = "gpt",
    mutate: Callable[[], None] | None = None,
    timeout_s: float = 55,
) -> list[Outcome]:
    """Train under a layout; outcomes by rank."""
    return run_ranks(
        outcome,
        planned(layout, family),
        num_steps,
        mutate,
        num_ranks=layout.num_ranks,
        timeout_s=timeout_s,
    )


def lose_first(op: str) -> Callable[[], None]:
    """Make the mutation that spoils the first call of an operation in each step.

    A sum over ranks is left out; a message is sent as zeros, lest its receiver wait.
    A step ends with the all-reduce of its float64 scalars.
    """

    def mutate() -> None:
        real = {name: getattr(dist, name) for name in ("all_reduce", "isend")}
        state = {"spoilt": False}

        def spoil(name: str, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if tensor.dtype == torch.float64:
                state["spoilt"] = False
            elif name == op and not state["spoilt"] and tensor.is_floating_point():
                state["spoilt"] = True
                if name == "all_reduce":
                    return None
                tensor = torch.zeros_like(tensor)
            return real[name](tensor, *args, **kwargs)

        for name in real:
            setattr(dist, name, functools.partial(spoil, name))

    return mutate
