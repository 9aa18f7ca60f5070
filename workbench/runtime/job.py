"""An exported session as a job: the names that its cells use, under torchrun.

from workbench.runtime.job import enter

globals().update(enter())
"""

import atexit
import os
from pathlib import Path
from typing import Any

from workbench.collectives.group import RankGroup
from workbench.layout import Layout, load_layout
from workbench.telemetry import Event


def enter(folder: str | Path = ".", interface: str | None = None) -> dict[str, Any]:
    """Join the ranks that torchrun has started; return the names of a session.

    Args:
        folder: Holds `layout.toml`, and `plan.json` where a run was open.
        interface: Network interface of the group; None for loopback.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # torchrun's agent holds the store, outside the ranks.
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    backend = _backend()
    group = RankGroup.form(
        store_address=address,
        rank=rank,
        world_size=world_size,
        backend=backend,
        generation=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        interface=interface,
        record=_record_nothing,
    )
    atexit.register(group.close)
    layout = load_layout(Path(folder) / "layout.toml")
    ranks = group.ranks(layout)
    return {
        "rank": rank,
        "world_size": world_size,
        "device": ranks.device,
        "mesh": ranks.mesh,
        "ranks": ranks,
        "layout": layout,
        "plan": _plan(Path(folder) / "plan.json", layout),
    }


def _backend() -> Any:
    import torch

    if not torch.cuda.is_available():
        return "gloo"
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return "nccl"


def _plan(path: Path, layout: Layout) -> Any:
    if not path.exists():
        return None
    from workbench.planner.contract import Plan

    plan = Plan.from_json(path.read_text())
    assert plan.layout == layout, "plan.json and layout.toml were written together"
    return plan


def _record_nothing(event: Event) -> None:
    """Drop an event: a job has no recorder, its cells print what counts."""
    del event
