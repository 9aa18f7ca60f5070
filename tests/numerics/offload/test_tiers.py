"""Tiers give ordinary tensors, count them, refuse in time, and leave nothing behind."""

import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.errors import OffloadError
from workbench.offload import budget
from workbench.offload.host_units import Unit
from workbench.offload.lanes import ThreadLane, Throttle
from workbench.offload.streaming import Streamed, Streaming
from workbench.offload.tiers import DeviceTier, DiskTier, Flat, HostTier, Pool
from workbench.testing.ranks import Place, run_ranks
from workbench.units import MIB

CPU = torch.device("cpu")


@pytest.fixture(params=["device", "host", "disk"])
def tier(request, tmp_path):
    return {
        "device": lambda: DeviceTier(CPU),
        "host": HostTier,
        "disk": lambda: DiskTier(tmp_path),
    }[request.param]()


def test_a_placed_tensor_equals_its_source_and_is_counted_while_it_lives(tier) -> None:
    source = torch.randn(7, 5, dtype=torch.float64)

    placed = tier.place(source)
    part = placed[2:]

    assert torch.equal(placed, source)
    assert tier.used_bytes == source.nbytes
    del placed
    assert tier.used_bytes == source.nbytes  # a view keeps the whole
    del part
    assert tier.used_bytes == 0


def test_tensors_of_a_flat_buffer_are_aligned_as_torch_does(tier) -> None:
    like = [torch.empty(3), torch.empty(5, 2, dtype=torch.float64), torch.empty(())]

    flat = Flat(tier, like)

    assert [view.shape for view in flat.views] == [x.shape for x in like]
    assert all(view.data_ptr() % 64 == 0 for view in flat.views)


def test_a_pool_gives_the_same_bytes_again(tier) -> None:
    pool = Pool(tier)
    first = pool.take(1000)
    address = first.data_ptr()
    pool.give(first)

    assert pool.take(1000).data_ptr() == address
    assert tier.used_bytes == 1000


def test_a_capacity_is_kept() -> None:
    tier = HostTier(capacity_bytes=1000)
    tier_holds = tier.empty((200,))

    with pytest.raises(
        OffloadError, match="host tier has 200 B left, 400 B are needed"
    ):
        tier.empty((100,))
    assert tier.used_bytes == tier_holds.nbytes


def test_host_and_disk_lie_outside_the_budget(tmp_path) -> None:
    before = budget.status_bytes("VmData")

    held = [HostTier().empty((64 * MIB,), torch.uint8).fill_(1)]
    held.append(DiskTier(tmp_path).empty((64 * MIB,), torch.uint8).fill_(1))

    # Python's own objects may take a page or two meanwhile.
    assert budget.status_bytes("VmData") - before < 1 * MIB
    assert len(held) == 2


# A full disk, a small budget, a sudden end ---------------------------------------------


def on_a_full_disk(place: Place, folder: Path) -> tuple[str, int]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))  # the kernel refuses beyond
    tier = DiskTier(folder)
    with pytest.raises(OffloadError) as caught:
        tier.empty((2 * MIB,), torch.uint8)
    return str(caught.value), tier.used_bytes


def test_a_full_disk_is_an_error_when_the_file_is_made(tmp_path) -> None:
    [(message, used_bytes)] = run_ranks(on_a_full_disk, tmp_path, num_ranks=1)

    assert "cannot take 2.0 MiB more" in message
    assert used_bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path) -> None:
    with pytest.raises(OffloadError, match="does not exist"):
        DiskTier(tmp_path / "nowhere")


def killed_while_training(place: Place, folder: Path) -> None:
    disk = DiskTier(folder)
    disk.empty((MIB,), torch.uint8).fill_(1)
    assert disk.used_bytes == 0
    kept = disk.empty((MIB,), torch.uint8).fill_(1)
    os.kill(os.getpid(), signal.SIGKILL)
    del kept


def test_a_killed_rank_leaves_no_file_behind(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="rank 0 died"):
        run_ranks(killed_while_training, tmp_path, num_ranks=1)

    assert list(tmp_path.iterdir()) == []


def streamed_under_a_tiny_budget(place: Place) -> tuple[str, int]:
    budget.enforce(8 * MIB)
    host = HostTier()
    how = Streaming(
        weights=host,
        states=host,
        activations=host,
        optimizer_of=lambda own: torch.optim.SGD(own, lr=0.1),
    )
    with torch.device("meta"):
        units = [Unit(name=str(i), module=nn.Linear(1024, 1024)) for i in range(4)]
    with pytest.raises(OffloadError) as caught:
        Streamed(units, CPU, how)
    return str(caught.value), host.used_bytes


def test_a_budget_below_two_layers_is_refused_before_anything_is_made() -> None:
    [(message, used_bytes)] = run_ranks(streamed_under_a_tiny_budget, num_ranks=1)

    assert "two buffers of the largest unit's 4.0 MiB" in message
    assert used_bytes == 0


# Lanes --------------------------------------------------------------------------------


def test_copies_wait_for_what_they_follow() -> None:
    source, middle, target = torch.ones(1000), torch.zeros(1000), torch.zeros(1000)
    with (
        ThreadLane("slow", throttle=Throttle(bytes_per_s=1e5)) as slow,
        ThreadLane("fast") as fast,
    ):
        first = slow.copy([(middle, source)])
        second = fast.copy([(target, middle)], after=[first])

        second.finish()

    assert first.done()
    assert torch.equal(target, source)


def test_an_error_in_a_copy_reaches_who_waits_for_it() -> None:
    with ThreadLane("bad") as lane:
        transfer = lane.copy([(torch.zeros(3), torch.zeros(4))])

        with pytest.raises(RuntimeError, match="size of tensor"):
            transfer.finish()


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_a_link_without_speed_is_refused(rate) -> None:
    with pytest.raises(OffloadError, match="rate must be above 0"):
        Throttle(bytes_per_s=rate)
