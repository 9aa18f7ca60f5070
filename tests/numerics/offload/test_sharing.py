"""Ranks of one machine train one copy of a net, each with its part of the states."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from workbench.offload.host_units import Unit
from workbench.offload.sharing import Owners, SharedHostTier, Sharing
from workbench.offload.streaming import Streamed, Streaming
from workbench.offload.tiers import HostTier
from workbench.testing.ranks import Place, run_ranks

CPU = torch.device("cpu")
NUM_PARAMETERS = 6 * (64 * 64 + 64)


def train(place: Place, folder: Path | None) -> tuple[list[float], int, list[float]]:
    """Return the losses, bytes of this rank's states, and a sum per parameter."""

    def mean(gradients: list[torch.Tensor]) -> None:
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient /= 2

    torch.manual_seed(0)
    units = [Unit(name=str(i), module=nn.Linear(64, 64)) for i in range(6)]
    weights = HostTier() if folder is None else SharedHostTier(folder)
    states = HostTier()
    how = Streaming(
        weights=weights,
        states=states,
        activations=HostTier(),
        optimizer_of=lambda own: torch.optim.AdamW(own, lr=0.01, fused=True),
        reduce=mean,
        sharing=None
        if folder is None
        else Sharing(rank=place.rank, num_ranks=2, wait=dist.barrier),
    )
    net = Streamed(units, CPU, how)
    if isinstance(weights, SharedHostTier):
        weights.seal()
    losses = []
    for step in range(5):
        x = torch.full((8, 64), 1.0 + place.rank + step)
        made = net.forward_backward([x], lambda y, _: y.square().mean(), update=True)
        losses.append(made[0].item())
    sums = [p.sum().item() for p in net.parameters().values()]
    net.close()
    return losses, states.used_bytes, sums


def test_one_copy_trains_as_two_with_half_the_states_each(tmp_path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    apart = run_ranks(train, None)

    together = run_ranks(train, folder)

    assert [result[0] for result in together] == [result[0] for result in apart]
    assert together[0][2] == together[1][2] == apart[0][2]
    held = [result[1] for result in together]
    assert sum(held) == 8 * NUM_PARAMETERS  # two moments, float32, once
    assert held[0] == pytest.approx(held[1], rel=0.1)
    assert not folder.exists()


def test_owners_have_about_the_same_bytes() -> None:
    owners = Owners(3)
    held = [0, 0, 0]

    for _ in range(5):
        unit = {"a": torch.empty(100), "b": torch.empty(60), "c": torch.empty(30)}
        for name, rank in owners.deal(unit).items():
            held[rank] += unit[name].numel()

    assert sum(held) == 5 * 190
    assert max(held) - min(held) <= 100
