"""The wrapped group sees every call, counts it right, and can be freed."""

import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from workbench.collectives.methods import METHODS
from workbench.collectives.wrapped import WrappedGroup
from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.testing.ranks import Place, run_ranks

#: Methods of torch's ProcessGroup that move no tensors.
QUIET = {
    "BackendType", "CUSTOM", "GLOO", "MPI", "NCCL", "UCC", "UNDEFINED", "XCCL",
    "abort", "bound_device_id", "boxed", "unbox", "get_group_store", "group_desc",
    "group_name", "merge_remote_group", "monitored_barrier", "name", "rank", "size",
    "set_timeout", "shutdown", "split_group", "use_pg_for_symm_mem_rendezvous",
    "_backend_id", "_device_types", "_enable_collectives_timing", "_end_coalescing",
    "_get_backend", "_get_backend_name", "_get_sequence_number_for_group",
    "_has_hooks", "_id", "_pybind11_conduit_v1_", "_register_backend",
    "_register_on_completion_hook", "_set_default_backend", "_set_group_desc",
    "_set_group_name", "_set_sequence_number_for_group", "_start_coalescing",
    "_wait_for_pending_works",
}  # fmt: skip


def test_every_data_moving_method_of_torch_is_overridden() -> None:
    theirs = {name for name in dir(dist.ProcessGroup) if not name.startswith("__")}

    assert theirs - QUIET == set(METHODS)
    assert set(METHODS) <= set(vars(WrappedGroup))


def counted(place: Place) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    return {
        key: (traffic.count, traffic.payload_bytes, traffic.sent_bytes)
        for key, traffic in place.group.accounting.snapshot().items()
    }


def plain_calls(place: Place) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    other = 1 - place.rank
    x = torch.ones(256)  # 1024 bytes
    with place.group.phase("step"):
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.all_gather_single(torch.empty(512), x)
        dist.reduce_scatter_single(torch.empty(128), x)
        dist.all_to_all_single(torch.empty(256), x)
        if place.rank == 0:
            dist.send(x, other)
        else:
            dist.recv(x, other)
        dist.barrier()
    return counted(place)


def test_counts_are_the_logical_payload_and_the_rings_share() -> None:
    first, second = run_ranks(plain_calls)

    same = {
        ("step", "all_reduce", "world"): (1, 1024, 1024),
        ("step", "broadcast", "world"): (1, 1024, 512),
        ("step", "all_gather", "world"): (1, 2048, 1024),
        ("step", "reduce_scatter", "world"): (1, 1024, 1024),  # an all-reduce on gloo
        ("step", "all_to_all", "world"): (1, 1024, 512),
        ("step", "barrier", "world"): (1, 0, 0),
    }
    assert first == same | {("step", "send", "world"): (1, 1024, 1024)}
    assert second == same


def torch_code(place: Place) -> tuple[int, int, int]:
    """DDP's C++ reducer, FSDP2, and functional collectives, on the axis' group."""
    ranks = place.group.ranks(Layout(fsdp=2))
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with place.group.phase("ddp"):
        replica = DistributedDataParallel(net)
        replica(torch.ones(2, 8)).sum().backward()
    sharded = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for layer in sharded:
        fully_shard(layer, mesh=ranks.mesh)
    fully_shard(sharded, mesh=ranks.mesh)
    with place.group.phase("fsdp"):
        sharded(torch.ones(2, 8)).sum().backward()
    with place.group.phase("functional"):
        import torch.distributed._functional_collectives as functional

        functional.all_reduce(torch.ones(4), "sum", ranks.mesh).add(1)
    table = counted(place)
    return (
        table["ddp", "all_reduce", "world"][1],
        table["fsdp", "all_gather", "fsdp"][0],
        table["functional", "all_reduce", "fsdp"][0],
    )


def test_torchs_own_code_is_seen_with_its_axis() -> None:
    gradient_bytes = 2 * (64 + 8) * 4

    results = run_ranks(torch_code)

    assert results == [(gradient_bytes, 4, 1)] * 2


def blocked_then_cut(place: Place) -> tuple[str, str, int, float]:
    """Rank 0 waits for a rank that never comes, until a side thread cuts."""
    dist.barrier()
    if place.rank == 1:
        # Stay alive and away from the collective until rank 0 hangs up.
        probe = place.group._groups[0]
        deadline_s = time.monotonic() + 20
        while time.monotonic() < deadline_s:
            try:
                probe.inner.recv([torch.zeros(1)], 0, 9).wait()
            except RuntimeError:
                break
        place.group.close()
        return ("", "", 0, 0.0)
    seen: list[tuple[str, str]] = []
    released = threading.Event()

    def cut() -> None:
        while not (table := place.group.in_flight()):
            released.wait(0.001)
        seen.append((table[0].op, table[0].axis))
        place.group.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    began_s = time.monotonic()
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(4))
    took_s = time.monotonic() - began_s
    thread.join()
    op, axis = seen[0]
    left = len(place.group.in_flight())
    place.group.close()
    return (op, axis, left, took_s)


def interrupted(place: Place) -> float:
    """Rank 0 gets Ctrl-C while it waits in a collective; then both finish it."""
    x = torch.ones(1)
    if place.rank == 0:
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work = dist.all_reduce(x, async_op=True)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            work.wait()
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        dist.recv(torch.ones(1), 0)
        dist.all_reduce(x)
    return x.item()


def test_ctrl_c_interrupts_a_blocked_collective_and_leaves_it_valid() -> None:
    assert run_ranks(interrupted) == [2.0, 2.0]


def wrong_layout(place: Place) -> str:
    with pytest.raises(LayoutError) as caught:
        place.group.ranks(Layout(dp=4))
    return str(caught.value)


def test_a_layout_for_other_ranks_is_refused_with_both_numbers() -> None:
    assert "4 ranks" in run_ranks(wrong_layout)[0]


def test_a_cut_frees_a_blocked_rank_and_names_where_it_was() -> None:
    (op, axis, still_in_flight, took_s), _ = run_ranks(blocked_then_cut)

    assert (op, axis, still_in_flight) == ("all_reduce", "world", 0)
    assert took_s < 5  # milliseconds when idle; without the cut, half an hour


def cut_then_rejoin(place: Place) -> tuple[float, int]:
    """Train a step, lose the group, form it again: net and mesh go on."""
    ranks = place.group.ranks(Layout(fsdp=2))
    torch.manual_seed(0)
    net = fully_shard(nn.Linear(8, 8), mesh=ranks.mesh)
    net(torch.ones(2, 8)).sum().backward()
    replica = DistributedDataParallel(nn.Linear(8, 8))
    dist.barrier()

    place.group.cut()
    with pytest.raises(RuntimeError):
        dist.barrier()
    place.group.rejoin(generation=1)

    net(torch.ones(2, 8)).sum().backward()
    x = torch.ones(1)
    dist.all_reduce(x, group=ranks.mesh.get_group("fsdp"))
    replica(torch.ones(2, 8)).sum().backward()
    return x.item(), place.group.generation


def test_a_group_formed_again_serves_the_old_mesh_and_net() -> None:
    assert run_ranks(cut_then_rejoin) == [(2.0, 1)] * 2
