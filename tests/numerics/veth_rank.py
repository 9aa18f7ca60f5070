"""One rank in a network namespace: trains, and compares its interface with the count.

Arguments: rank, address of rank 0, port, interface. Rank 0 also holds the store.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tests.numerics.training_runs import plan_without_torch, small_corpus
from workbench.collectives import RankGroup
from workbench.layout import Layout
from workbench.training import Trainer


def main(rank: int, address: str, port: int, interface: str) -> None:
    torch.set_num_threads(1)
    store = TCPStore(address, port, 2, is_master=rank == 0, wait_for_workers=True)
    group = RankGroup.form(
        store_address=(address, port),
        rank=rank,
        world_size=2,
        backend="gloo",
        generation=0,
        interface=interface,
        record=lambda _: None,
    )
    ratios = {name: _ratio(group, name, interface) for name in ("dp", "fsdp")}
    dist.barrier()
    group.close()
    del store
    print(json.dumps(ratios))


def _ratio(group: RankGroup, axis: str, interface: str) -> float:
    """Train five steps; bytes that left the interface over bytes counted as sent."""
    plan = plan_without_torch(Layout(**{axis: 2}), hidden=128)
    trainer = Trainer(plan, small_corpus(), group.ranks(plan.layout))
    trainer.fit(1)
    dist.barrier()
    counted, left = _sent(group), _left(interface)
    trainer.fit(5)
    dist.barrier()
    return (_left(interface) - left) / (_sent(group) - counted)


def _sent(group: RankGroup) -> int:
    return sum(row.sent_bytes for row in group.accounting.snapshot().values())


def _left(interface: str) -> int:
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
