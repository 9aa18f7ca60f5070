"""ZeRO's states in a host or disk tier: the same training, other memory (S09)."""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from workbench.offload.optimizer_states import keep_states_in
from workbench.offload.placement import place_gradients, place_parameters
from workbench.offload.tiers import DiskTier, HostTier, Tier
from workbench.testing.ranks import Place, run_ranks

#: S09: 16 bytes per parameter for fp32 Adam, 4 each of weight and gradient, 8 of states.
WIDTH, NUM_LAYERS = 128, 4
NUM_PARAMETERS = NUM_LAYERS * (WIDTH * WIDTH + WIDTH)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_LAYERS)))


def train(module: nn.Module, rank: int, tier: Tier | None) -> tuple[list[float], int]:
    """Train with everything in the tier; return losses and its bytes with gradients."""
    if tier is not None:
        place_parameters(module, tier)
        place_gradients(module, tier)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, fused=True)
    if tier is not None:
        keep_states_in(tier, optimizer)
    losses = []
    held_bytes = 0
    for step in range(5):
        for _ in range(2):  # gradients accumulate where they lie
            x = torch.full((8, WIDTH), 1.0 + rank + step)
            loss = module(x).square().mean()
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
        held_bytes = tier.used_bytes if tier is not None else 0
        optimizer.zero_grad()
    return losses, held_bytes


@pytest.mark.parametrize("name", ["host", "disk"])
def test_one_rank_trains_the_same_with_16_bytes_per_parameter_away(name, tmp_path):
    tier = HostTier() if name == "host" else DiskTier(tmp_path)
    plain, _ = train(net(), 0, None)

    losses, held_bytes = train(net(), 0, tier)

    assert losses == plain
    assert held_bytes == 16 * NUM_PARAMETERS


def sharded(place: Place, folder: str | None) -> tuple[list[float], int]:
    module = net()
    for part in module:
        fully_shard(part)
    fully_shard(module)
    tier = {None: lambda: None, "": HostTier}.get(folder, lambda: DiskTier(folder))()
    return train(module, place.rank, tier)


def test_two_fsdp_ranks_train_the_same_with_8_bytes_per_parameter_away(tmp_path):
    plain = run_ranks(sharded, None)
    host = run_ranks(sharded, "")
    disk = run_ranks(sharded, tmp_path)

    assert [losses for losses, _ in host] == [losses for losses, _ in plain]
    assert [losses for losses, _ in disk] == [losses for losses, _ in plain]
    # ZeRO-3 over two: 16 / 2 bytes per parameter and rank.
    assert {held for _, held in host + disk} == {8 * NUM_PARAMETERS}
