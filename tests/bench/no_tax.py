"""What our steps cost beside plain torch scripts that do the same, in pairs.

Per axis (fsdp, tp, pp; two ranks): forward, backward, clipping over all ranks, AdamW and
the loss, on the same net and batches, by our strategy and by a hand-written script with
torch's FSDP2, `parallelize_module` with `loss_parallel`, or `Schedule1F1B`. Prints the
median ratio of tokens per second, ours over plain, with a bootstrap interval.

    python -m tests.bench.no_tax
"""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

from tests.bench.telemetry_cost import median_with_interval
from workbench.collectives import Ranks
from workbench.layout import Layout
from workbench.model.presets import model
from workbench.strategies import nets
from workbench.strategies.choose import build
from workbench.strategies.contract import Settings
from workbench.strategies.pipeline import cut_stages
from workbench.testing.ranks import Place, run_ranks

STANDALONE = True
PAIRS = 60
SAMPLES, TOKENS, LEARNING_RATE = 16, 64, 1e-3
SPEC = model("llama", hidden=128, num_layers=4, num_heads=4, tokens_per_sample=TOKENS)
LAYOUTS = {
    "fsdp": Layout(fsdp=2),
    "tp": Layout(tp=2),
    "pp": Layout(pp=2, num_microbatches=4),
}

Step = Callable[[torch.Tensor, torch.Tensor], float]


def ours(ranks: Ranks) -> Step:
    settings = Settings(nominal_tokens=SAMPLES * TOKENS)
    strategy = build(ranks.layout, settings)
    with torch.device("meta"):
        net = nets.build(SPEC)
    strategy.prepare(net, ranks.layout, ranks)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> float:
        return strategy.step((inputs, targets), learning_rate=LEARNING_RATE).loss

    return step


def whole_net() -> nets.Decoder:
    with torch.device("meta"):
        net = nets.build(SPEC)
    nets.materialize(net, torch.device("cpu"), seed=0)
    return net


def adamw(parameters: list[nn.Parameter]) -> torch.optim.AdamW:
    """Vectors are not decayed, as in ours."""
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=LEARNING_RATE,
        betas=(0.9, 0.95),
        fused=True,
    )


def mean_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plain_fsdp(ranks: Ranks) -> Step:
    net = whole_net()
    for layer in net.layers:
        fully_shard(layer, mesh=ranks.mesh)
    fully_shard(net, mesh=ranks.mesh)
    optimizer = adamw(list(net.parameters()))

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> float:
        loss = mean_loss(net(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.detach()
        dist.all_reduce(value, dist.ReduceOp.AVG)
        return value.item()

    return step


def plain_tp(ranks: Ranks) -> Step:
    net = whole_net()
    rules: dict[str, Any] = {
        "embedding.tokens": RowwiseParallel(input_layouts=Replicate()),
        "layers.*.attn.proj": RowwiseParallel(),
        "layers.*.mlp.down": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    for name in ("attn.q", "attn.k", "attn.v", "mlp.gate", "mlp.up"):
        rules[f"layers.*.{name}"] = ColwiseParallel()
    parallelize_module(net, ranks.mesh, rules)
    cut = [p for p in net.parameters() if isinstance(p, DTensor)]
    kept = [p for p in net.parameters() if not isinstance(p, DTensor)]
    optimizers = [adamw(cut), adamw(kept)]

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> float:
        with loss_parallel():
            loss = mean_loss(net(inputs), targets)
            loss.backward()
        norms = [
            torch.nn.utils.get_total_norm([p.grad for p in part if p.grad is not None])
            for part in (cut, kept)
        ]
        assert isinstance(norms[0], DTensor)
        norm = torch.stack([norms[0].full_tensor(), norms[1]]).norm()
        for part in (cut, kept):
            torch.nn.utils.clip_grads_with_norm_(part, 1.0, norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        assert isinstance(loss, DTensor)
        return loss.full_tensor().item()

    return step


def plain_pp(ranks: Ranks) -> Step:
    rank = ranks.rank
    module = cut_stages(whole_net(), rank=rank, num_ranks=2, chunks=1)[0]
    stage = PipelineStage(
        module, rank, 2, torch.device("cpu"), group=ranks.mesh.get_group()
    )
    schedule = Schedule1F1B(stage, ranks.layout.num_microbatches, loss_fn=mean_loss)
    parameters = list(module.parameters())
    optimizer = adamw(parameters)

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> float:
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=losses)
        squares = torch.nn.utils.get_total_norm(
            [p.grad for p in parameters if p.grad is not None]
        ).square()
        value = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        scalars = torch.stack([squares, value])
        dist.all_reduce(scalars)
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, scalars[0].sqrt())
        optimizer.step()
        optimizer.zero_grad()
        return scalars[1].item()

    return step


PLAIN = {"fsdp": plain_fsdp, "tp": plain_tp, "pp": plain_pp}


def batch(axis: str, rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    text = torch.randint(0, 256, (SAMPLES, TOKENS + 1), generator=generator)
    if axis == "fsdp":
        text = text.chunk(2)[rank]
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def timed(step: Step, given: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
    dist.barrier()
    began_s = time.perf_counter()
    loss = step(*given)
    dist.barrier()
    return time.perf_counter() - began_s, loss


def measure(place: Place, axis: str) -> list[dict[str, tuple[float, float]]]:
    ranks = place.group.ranks(LAYOUTS[axis])
    steps = {"ours": ours(ranks), "plain": PLAIN[axis](ranks)}
    pairs = []
    for number in range(PAIRS + 3):
        order = ("ours", "plain") if number % 2 else ("plain", "ours")
        given = batch(axis, place.rank, number)
        pairs.append({kind: timed(steps[kind], given) for kind in order})
    return pairs


def main() -> dict[str, Any]:
    result: dict[str, Any] = {"pairs": PAIRS, "wanted": 0.98}
    for axis in LAYOUTS:
        pairs = run_ranks(measure, axis, timeout_s=600)[0]
        warm = pairs[3:]
        ratios = np.array([pair["plain"][0] / pair["ours"][0] for pair in warm])
        gaps = [abs(pair["plain"][1] - pair["ours"][1]) for pair in pairs]
        result[axis] = median_with_interval(ratios) | {"largest_loss_gap": max(gaps)}
    return result


if __name__ == "__main__":
    print(json.dumps({"bench": "no_tax"} | main()))
