"""Memory beyond the device: what transfers cost, against prediction and FSDP2.

Every pair is interleaved (A B A B ...), and medians are compared, since the machine may
be shared. A throttled tier plays the link; the CPU-only machine's own copies are faster.

- swap_hidden: steps per second with all activations swapped over a link on which the
  planner says they hide, against the plain step;
- swap_stall: the same over a slow link: predicted and measured stall;
- stream_stall: a streamed step over a slow link: predicted and measured;
- stream_against_fsdp2: tokens per second of streaming without any throttle, keeping
  activations or computing each layer again, of torch's
  FSDP2 with `CPUOffloadPolicy(pin_memory=False)`, and of the same with each layer
  recomputed, as streaming does it.

    OMP_NUM_THREADS=1 python -m tests.bench.offload
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.nn import functional

from workbench.model.presets import model
from workbench.offload.host_units import Unit
from workbench.offload.lanes import Throttle
from workbench.offload.streaming import Streamed, StreamEvent, Streaming
from workbench.offload.swap import Swap
from workbench.offload.tiers import HostTier
from workbench.planner.offload import (
    Link,
    StreamedUnit,
    SwapSetting,
    stream_cost,
    swap_cost,
)
from workbench.strategies import nets
from workbench.strategies.streamed import End
from workbench.testing.ranks import Place, run_ranks

STANDALONE = True
CPU = torch.device("cpu")
NUM_PAIRS = 7


def main() -> dict[str, Any]:
    torch.set_num_threads(1)
    [against] = run_ranks(stream_against_fsdp2, num_ranks=1, timeout_s=600)
    return {
        "swap_hidden": swap_pair(share_of_compute=0.5),
        "swap_stall": swap_pair(share_of_compute=2.0),
        "stream_stall": stream_pair(share_of_compute=2.0),
        "stream_against_fsdp2": against,
    }


def timed(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return time.perf_counter() - began_s


# Swap --------------------------------------------------------------------------------


def swap_pair(*, share_of_compute: float) -> dict[str, float]:
    """Swap over a link that needs that share of a layer's forward per tensor."""
    torch.manual_seed(0)
    parts = [(nn.Linear(512, 512), nn.GELU()) for _ in range(12)]
    net = nn.Sequential(*(part for pair in parts for part in pair))
    x = torch.randn(2048, 512)
    setting = SwapSetting(lower=2, upper=2)

    def step(swap: Swap) -> None:
        with swap.forward():
            loss = net(x).square().mean()
        loss.backward()

    plain = Swap(net, SwapSetting(num_tensors=0), HostTier(), device=CPU)
    for _ in range(3):
        step(plain)
    profile = plain.last.profile()
    per_tensor_s = sum(t.forward_s for t in profile) / len(profile)
    rate = profile[0].num_bytes / (share_of_compute * per_tensor_s)

    swapped = Swap(
        net, setting, HostTier(), device=CPU, throttle=Throttle(bytes_per_s=rate)
    )
    step(swapped)
    plain_s, swapped_s, predicted_s, waited_s = [], [], [], []
    for _ in range(NUM_PAIRS):
        plain_s.append(timed(lambda: step(plain)))
        # From this very pair's compute times and links: the machine's speed drifts.
        cost = swap_cost(
            plain.last.profile(),
            setting,
            outward=swapped.link(inward=False),
            inward=swapped.link(inward=True),
        )
        predicted_s.append(cost.stall_s)
        swapped_s.append(timed(lambda: step(swapped)))
        waited_s.append(swapped.last.counts.stall_s)
    plain.close()
    swapped.close()
    pairs = list(zip(plain_s, swapped_s, strict=True))
    return {
        "plain_step_ms": 1e3 * statistics.median(plain_s),
        "swapped_step_ms": 1e3 * statistics.median(swapped_s),
        "throughput_ratio": statistics.median(a / b for a, b in pairs),
        "predicted_stall_ms": 1e3 * statistics.median(predicted_s),
        "measured_stall_ms": 1e3 * statistics.median(waited_s),
        "longer_step_ms": 1e3 * statistics.median(b - a for a, b in pairs),
    }


# Streaming ---------------------------------------------------------------------------


def layer(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
    )


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


def stream_pair(*, share_of_compute: float) -> dict[str, float]:
    """Stream over a link that needs that share of a unit's forward for its weights."""
    width, depth, batch = 256, 10, 1024
    x = torch.randn(batch, width)

    def streamed(throttle: Throttle | None, events: list[StreamEvent]) -> Streamed:
        torch.manual_seed(0)
        host = HostTier()
        how = Streaming(
            weights=host,
            states=host,
            activations=host,
            optimizer_of=lambda own: torch.optim.SGD(own, lr=1e-3),
            throttle=throttle,
            record=events.append,
        )
        units = [Unit(name=str(i), module=layer(width)) for i in range(depth)]
        return Streamed(units, CPU, how)

    def step(net: Streamed) -> None:
        net.forward_backward([x], lambda y, _: y.square().mean())

    free_events: list[StreamEvent] = []
    free = streamed(None, free_events)
    for _ in range(3):
        free_events.clear()
        step(free)
    forward_s, _ = compute_s(free_events, depth)
    weight_bytes = free.window.unit_bytes
    rate = weight_bytes / (share_of_compute * forward_s)
    link = Link(bytes_per_s=rate)
    slow_events: list[StreamEvent] = []
    slow = streamed(Throttle(bytes_per_s=rate), slow_events)
    step(slow)
    free_s, slow_s, predicted_s = [], [], []
    for _ in range(NUM_PAIRS):
        free_events.clear()
        free_s.append(timed(lambda: step(free)))
        forward_s, backward_s = compute_s(free_events, depth)
        unit = StreamedUnit(
            weight_bytes=weight_bytes,
            gradient_bytes=weight_bytes,
            input_bytes=x.nbytes,
            forward_s=forward_s,
            backward_s=backward_s,
        )
        cost = stream_cost([unit] * depth, outward=link, inward=link)
        predicted_s.append(cost.stall_s)
        slow_s.append(timed(lambda: step(slow)))
    free.close()
    slow.close()
    return {
        "free_step_ms": 1e3 * statistics.median(free_s),
        "slow_step_ms": 1e3 * statistics.median(slow_s),
        "predicted_stall_ms": 1e3 * statistics.median(predicted_s),
        "measured_stall_ms": 1e3
        * statistics.median(b - a for a, b in zip(free_s, slow_s, strict=True)),
    }


def compute_s(events: list[StreamEvent], depth: int) -> tuple[float, float]:
    """Return the mean seconds of a forward and of a backward visit."""
    begins = [e.seconds for e in events if e.moment == "compute begins"]
    ends = [e.seconds for e in events if e.moment == "compute ends"]
    spans = [end - begin for begin, end in zip(begins, ends, strict=True)]
    forward, backward = spans[: depth - 1], spans[depth - 1 :]
    return statistics.mean(forward), statistics.mean(backward)


def stream_against_fsdp2(place: Place) -> dict[str, float]:
    """Train one GPT in turn by streaming and by FSDP2 with states on the host."""
    del place
    spec = model(
        "gpt",
        hidden=256,
        num_layers=8,
        num_heads=4,
        tokens_per_sample=128,
        vocab_size=512,
    )
    batch = torch.randint(512, (8, 129))
    inputs, targets = batch[:, :-1], batch[:, 1:]

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def fsdp2(*, recompute: bool) -> Callable[[], None]:
        net = made(spec)
        mesh = init_device_mesh("cpu", (1,))
        policy = CPUOffloadPolicy(pin_memory=False)
        for part in net.layers:
            part.recompute = recompute
            fully_shard(part, mesh=mesh, offload_policy=policy)
        fully_shard(net, mesh=mesh, offload_policy=policy)
        optimizer = adamw(list(net.parameters()))

        def step() -> None:
            loss(net(inputs)).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    def streamed(*, recompute: bool) -> Callable[[], object]:
        net, host = made(spec), HostTier()
        how = Streaming(
            weights=host,
            states=host,
            activations=host,
            optimizer_of=adamw,
            recompute=recompute,
        )
        parts = [net.embedding, *net.layers, End(net)]
        units = [Unit(name=f"unit{i}", module=part) for i, part in enumerate(parts)]
        streams = Streamed(units, CPU, how)
        return lambda: streams.forward_backward(
            [inputs], lambda logits, _: loss(logits), update=True
        )

    steps: dict[str, Callable[[], object]] = {
        "streamed": streamed(recompute=False),
        "streamed_recompute": streamed(recompute=True),
        "fsdp2_cpu_offload": fsdp2(recompute=False),
        "fsdp2_cpu_offload_recompute": fsdp2(recompute=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(NUM_PAIRS + 1):
        for name, step in steps.items():
            step_s = timed(step)
            if index:
                seconds[name].append(step_s)
    return {
        f"{name}_tokens_per_s": inputs.numel() / statistics.median(times)
        for name, times in seconds.items()
    }


def made(spec: Any) -> nets.Decoder:
    with torch.device("meta"):
        net = nets.build(spec)
    nets.materialize(net, CPU, seed=0)
    return net


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
