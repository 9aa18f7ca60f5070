"""Memory beyond a GPU: pinned buffers and copy streams change no bit of a training."""

import pytest
import torch
from torch import nn

from workbench.offload.cached_embedding import CachedEmbedding
from workbench.offload.host_units import Unit
from workbench.offload.streaming import Streamed, Streaming
from workbench.offload.swap import Swap
from workbench.offload.tiers import DiskTier, HostTier, Tier
from workbench.planner.offload import SwapSetting
from workbench.units import MIB

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
WIDTH = 1024


@pytest.fixture
def device():
    return torch.device("cuda", 0)


@pytest.fixture(params=["host", "disk"])
def tier(request, tmp_path) -> Tier:
    return HostTier(pinned=True) if request.param == "host" else DiskTier(tmp_path)


def layers(depth: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(depth)]


def inputs(device: torch.device, batch: int = 2048) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, WIDTH, generator=generator).to(device)


def plain_gradients(depth: int, device: torch.device) -> list[torch.Tensor]:
    net = nn.Sequential(*layers(depth)).to(device)
    net(inputs(device)).square().mean().backward()
    return [parameter.grad.cpu() for parameter in net.parameters()]


def test_swapped_gradients_are_equal_and_the_peak_falls(device, tier) -> None:
    peaks, gradients = [], []
    for setting in (SwapSetting(num_tensors=0), SwapSetting(lower=2, upper=2)):
        net = nn.Sequential(*layers(24)).to(device)
        swap = Swap(net, setting, tier, device=device)
        x = inputs(device)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with swap.forward():
            loss = net(x).square().mean()
        loss.backward()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        gradients.append([p.grad.cpu() for p in net.parameters()])
        swap.close()

    assert all(map(torch.equal, *gradients))
    # 24 layers keep two tensors of 8 MiB each; a window of a few remains. Gradients,
    # 96 MiB, are in both peaks.
    assert peaks[0] - peaks[1] > 24 * 8 * MIB


def streamed(depth: int, device: torch.device, tier: Tier, **how) -> Streamed:
    units = [Unit(name=str(i), module=part) for i, part in enumerate(layers(depth))]
    streaming = Streaming(
        weights=tier,
        states=tier,
        activations=tier,
        optimizer_of=lambda own: torch.optim.AdamW(own, lr=1e-3, fused=True),
        **how,
    )
    return Streamed(units, device, streaming)


@pytest.mark.parametrize("recompute", [True, False])
def test_streamed_gradients_are_equal_bit_for_bit(device, tier, recompute) -> None:
    net = streamed(12, device, tier, recompute=recompute)

    net.forward_backward([inputs(device)], lambda y, _: y.square().mean())

    expected = plain_gradients(12, device)
    assert all(map(torch.equal, net.gradients().values(), expected))
    assert net.window.most_resident == 2
    net.close()


def test_device_memory_of_streaming_does_not_depend_on_depth(device) -> None:
    peaks = []
    for depth in (12, 48):
        net = streamed(depth, device, HostTier(pinned=True))
        x = inputs(device)
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            net.forward_backward([x], lambda y, _: y.square().mean(), update=True)
            net.settle()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated())
        net.close()
        del net, x

    # The allocator rounds, and how far the host runs ahead differs from run to run.
    assert peaks[1] == pytest.approx(peaks[0], rel=0.1)


def test_a_copy_runs_while_the_layer_before_computes(device) -> None:
    net = streamed(24, device, HostTier(pinned=True))
    x = inputs(device, batch=16384)
    net.forward_backward([x], lambda y, _: y.square().mean())

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profile:
        net.forward_backward([x], lambda y, _: y.square().mean())
        torch.cuda.synchronize()

    spans = [(e.name, e.time_range) for e in profile.events()]
    copies = [span for name, span in spans if "HtoD" in name]
    computes = [span for name, span in spans if "gemm" in name.lower()]
    overlapping = [
        copy
        for copy in copies
        if any(copy.start < c.end and c.start < copy.end for c in computes)
    ]
    assert len(overlapping) > len(copies) // 2
    net.close()


def test_a_cached_table_trains_like_a_resident_one(device) -> None:
    generator = torch.Generator().manual_seed(2)
    table = torch.randn(10_000, 64, generator=generator)
    # No id twice in a batch: sums of repeated rows have no fixed order on a GPU.
    batches = [
        torch.randperm(10_000, generator=generator)[:256].view(64, 4) for _ in range(20)
    ]
    whole = nn.Embedding.from_pretrained(table.to(device), freeze=False, sparse=True)
    cached = CachedEmbedding(
        table, num_cached=1_000, tier=HostTier(pinned=True), device=device, policy="lru"
    )

    for module in (whole, cached):
        optimizer = torch.optim.SGD([module.weight], lr=0.1)
        for batch in batches:
            ids = batch.to(device) if module is whole else batch
            optimizer.zero_grad()
            (module(ids).sum(dim=1) - 1.0).square().mean().backward()
            optimizer.step()

    assert torch.equal(cached.table(), whole.weight.data.cpu())
    cached.close()
