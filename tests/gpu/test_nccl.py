"""The wrapped group, its accounting, its abort and the sensors on a CUDA device."""

import threading
import time

import pytest
import torch
import torch.distributed as dist

from workbench.collectives import RankGroup
from workbench.data import python_source
from workbench.hardware.presets import hardware
from workbench.layout import Layout
from workbench.model.presets import model
from workbench.planner import plan
from workbench.sensors import device_memory
from workbench.telemetry import Event
from workbench.testing.ranks import loopback_store
from workbench.training import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def group() -> RankGroup:
    """A group of one rank over NCCL, closed after the test."""
    store = loopback_store()
    events: list[Event] = []
    made = RankGroup.form(
        store_address=("127.0.0.1", store.port),
        rank=0,
        world_size=1,
        backend="nccl",
        generation=0,
        interface=None,
        record=events.append,
    )
    yield made
    made.close()
    del store


def test_a_cuda_collective_is_counted(group: RankGroup) -> None:
    x = torch.ones(256, device="cuda")
    with group.phase("step"):
        dist.all_reduce(x)
    torch.cuda.synchronize()

    row = group.accounting.snapshot()["step", "all_reduce", "world"]
    assert (row.count, row.payload_bytes, row.sent_bytes) == (1, 1024, 0)


def test_nothing_is_in_flight_once_the_device_is_done(group: RankGroup) -> None:
    x = torch.ones(2**20, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()

    deadline_s = time.monotonic() + 10
    while group.in_flight() and time.monotonic() < deadline_s:
        dist.barrier()

    assert len(group.in_flight()) <= 1


def test_a_cut_group_can_be_formed_again(group: RankGroup) -> None:
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    thread = threading.Thread(target=group.cut)
    thread.start()
    thread.join(timeout=20)

    group.rejoin(generation=1)
    x = torch.ones(1, device="cuda")
    dist.all_reduce(x)

    assert x.item() == 1.0


def test_device_memory_follows_a_tensor(group: RankGroup) -> None:
    torch.ones(1, device="cuda")
    before = device_memory()
    tensor = torch.ones(2**24, device="cuda")
    with_tensor = device_memory()
    assert before is not None
    assert with_tensor is not None

    assert with_tensor.live_bytes - before.live_bytes == tensor.nbytes
    assert with_tensor.peak_bytes >= with_tensor.live_bytes


def test_a_training_step_runs_on_the_device(group: RankGroup) -> None:
    spec = model("gpt", hidden=64, num_layers=2, num_heads=2, tokens_per_sample=64)
    planned = plan(spec, hardware("h100"), Layout(), global_batch=8)
    trainer = Trainer(
        planned, python_source(tokens_per_sample=64), group.ranks(Layout())
    )

    result = trainer.fit(20)

    assert result.losses[-1] < result.losses[0]
