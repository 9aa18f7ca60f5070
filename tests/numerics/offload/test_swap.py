"""Swapped activations come back bit for bit, and fewer bytes stay meanwhile."""

import pytest
import torch
from torch import nn

from workbench.errors import OffloadError
from workbench.offload.lanes import Throttle
from workbench.offload.swap import Pass, Swap
from workbench.offload.tiers import HostTier
from workbench.planner.offload import SwapSetting

CPU = torch.device("cpu")
ALL = SwapSetting(num_tensors=-1, lower=1, upper=1)
NONE = SwapSetting(num_tensors=0)


def mlp(num_layers: int = 16, width: int = 256, dtype=torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [(nn.Linear(width, width), nn.GELU()) for _ in range(num_layers)]
    return nn.Sequential(*(part for layer in layers for part in layer)).to(dtype)


def inputs(batch: int = 512, width: int = 256, dtype=torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, width, generator=generator, dtype=dtype)


def step(net: nn.Module, setting: SwapSetting, x: torch.Tensor, **kwargs) -> Pass:
    swap = Swap(net, setting, HostTier(), device=CPU, **kwargs)
    net.zero_grad()
    with swap.forward() as done:
        loss = net(x).square().mean()
    loss.backward()
    swap.close()
    return done


def gradients(net: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in net.parameters()]


def test_16_layer_mlp_keeps_its_weights_alone() -> None:
    net = mlp()

    plain = step(net, NONE, inputs()).counts
    swapped = step(net, ALL, inputs()).counts

    # S01's prototype: 21.2 MB -> 3.9 MB kept, 17.3 MB moved. Exactly: 33 activations
    # of 512 x 256, and the weights of the 15 layers whose input needs a gradient.
    assert (plain.kept_bytes, plain.moved_bytes) == (33 * 2**19 + 15 * 2**18, 0)
    assert (swapped.kept_bytes, swapped.moved_bytes) == (15 * 2**18, 33 * 2**19)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("setting", [ALL, SwapSetting(num_tensors=7, lower=3, upper=9)])
def test_gradients_are_equal_bit_for_bit(dtype, setting) -> None:
    net, x = mlp(4, dtype=dtype), inputs(dtype=dtype)
    step(net, NONE, x)
    plain = gradients(net)

    step(net, setting, x)

    assert all(map(torch.equal, plain, gradients(net)))


def test_a_storage_saved_twice_moves_once() -> None:
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))

    done = step(net, ALL, inputs())

    assert done.num_saved == 3  # input, ReLU's output for two users, last output


def test_a_graph_kept_for_a_second_backward_gives_the_same() -> None:
    net, x = mlp(3), inputs()
    swap = Swap(net, ALL, HostTier(), device=CPU)
    with swap.forward():
        loss = net(x).square().mean()

    first = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(net.parameters()))

    assert all(map(torch.equal, first, second))
    swap.close()


def test_a_change_in_place_before_the_copy_is_through_is_an_error() -> None:
    weight = torch.ones(256, 256, requires_grad=True)
    swap = Swap(
        nn.Module(), ALL, HostTier(), device=CPU, throttle=Throttle(bytes_per_s=1e7)
    )
    with swap.forward():
        x = inputs().clone()
        y = x @ weight
        x.add_(1.0)  # while 0.5 MB at 10 MB/s are on their way

    with pytest.raises(OffloadError, match="modified in place"):
        y.sum().backward()
    swap.close()


def test_host_memory_is_used_again() -> None:
    net, x = mlp(4), inputs()
    tier = HostTier()
    swap = Swap(net, ALL, tier, device=CPU)

    used = []
    for _ in range(3):
        with swap.forward():
            loss = net(x).square().mean()
        loss.backward()
        used.append(tier.used_bytes)

    assert used == [9 * 2**19] * 3
    swap.close()
