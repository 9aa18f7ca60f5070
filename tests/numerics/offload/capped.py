"""A training under a device budget, run as a process of its own by test_budget.

python capped.py plain|streamed|swapped CAP_BYTES; prints the limit, then each loss.
"""

import sys
from collections.abc import Callable

import torch
from torch import nn

from workbench.offload import budget
from workbench.offload.host_units import Unit
from workbench.offload.streaming import Streamed, Streaming
from workbench.offload.swap import Swap
from workbench.offload.tiers import HostTier
from workbench.planner.offload import SwapSetting

WIDTH, NUM_LAYERS, BATCH = 256, 32, 64
#: Weights, gradients and two moments of Adam, float32.
STATE_BYTES = 16 * NUM_LAYERS * (8 * WIDTH**2 + 5 * WIDTH)
CPU = torch.device("cpu")


def say_and_wait(value: float) -> None:
    """Print a number and wait until it was read, so that one can look from outside."""
    print(value, flush=True)
    sys.stdin.readline()


def layer(index: int) -> nn.Module:
    torch.manual_seed(index)
    return nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)
    )


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def batch(step: int) -> torch.Tensor:
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def loss(y: torch.Tensor) -> torch.Tensor:
    return (y - 1.0).square().mean()


def plain(num_steps: int, say: Callable[[float], None]) -> None:
    net = nn.Sequential(*(layer(index) for index in range(NUM_LAYERS)))
    optimizer = adamw(list(net.parameters()))
    for step in range(num_steps):
        value = loss(net(batch(step)))
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(value.item())


def streamed(num_steps: int, say: Callable[[float], None]) -> None:
    def fill(index: int):
        def fill_one(module: nn.Module) -> None:
            module.to_empty(device="cpu").load_state_dict(layer(index).state_dict())

        return fill_one

    with torch.device("meta"):
        units = [
            Unit(name=str(index), module=layer(index), fill=fill(index))
            for index in range(NUM_LAYERS)
        ]
    host = HostTier()
    how = Streaming(weights=host, states=host, activations=host, optimizer_of=adamw)
    net = Streamed(units, CPU, how)
    for step in range(num_steps):
        made = net.forward_backward([batch(step)], lambda y, _: loss(y), update=True)
        say(made[0].item())
    net.close()


def deep_activations(setting: SwapSetting, say: Callable[[float], None]) -> None:
    """32 layers 64 wide and a batch of 8192: activations are nearly all there is."""
    parts = [(nn.Linear(64, 64), nn.GELU()) for _ in range(NUM_LAYERS)]
    net = nn.Sequential(*(part for pair in parts for part in pair))
    swap = Swap(net, setting, HostTier(), device=CPU)
    x = torch.randn(8192, 64)
    for _ in range(2):
        with swap.forward():
            value = loss(net(x))
        value.backward()
        say(value.item())
    swap.close()


def main() -> None:
    how, cap_bytes = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    if cap_bytes:
        say_and_wait(budget.enforce(cap_bytes))
    if how == "plain":
        plain(3, say_and_wait)
    elif how == "streamed":
        streamed(3, say_and_wait)
    elif how == "unswapped":
        deep_activations(SwapSetting(num_tensors=0), say_and_wait)
    else:
        deep_activations(SwapSetting(), say_and_wait)


if __name__ == "__main__":
    main()
