"""Checkpoints: sharded by DCP, complete or not there, and no pickled objects of ours."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from workbench.errors import DataError

_NOTE = "workbench.json"


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a checkpoint says beside its tensors.

    Args:
        step: Steps done.
        horizon: Steps of the whole run, which the learning rate follows.
        seed: Of the data order and initial values.
        model: The model's spec as JSON.
        data_digest: Of the corpus.
        global_batch: Samples per step.
    """

    step: int
    horizon: int
    seed: int
    model: str
    data_digest: str
    global_batch: int


def save(path: Path, state: dict[str, Any], note: Note, *, rank: int) -> None:
    """Write a checkpoint; all ranks call this.

    It is written beside `path` and renamed when complete: a crash while saving leaves
    what was there before.
    """
    partial = path.with_name(f".{path.name}.partial")
    if rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    dist.barrier()
    dcp_save(state, checkpoint_id=partial)
    if rank == 0:
        (partial / _NOTE).write_text(json.dumps(asdict(note)))
        _replace(partial, path)
    dist.barrier()


def _replace(partial: Path, path: Path) -> None:
    """Put the new checkpoint in place of an older one of the same name."""
    for file in partial.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    old = path.with_name(f".{path.name}.old")
    with suppress(FileNotFoundError):
        path.rename(old)
    partial.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def read_note(path: Path) -> Note:
    """Read what a checkpoint says about itself.

    Raises:
        DataError: No complete checkpoint lies there.
    """
    try:
        return Note(**json.loads((path / _NOTE).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"no complete checkpoint lies in {path}: {error}",
            hint="give the folder that `save` or `fit(checkpoint_dir=...)` made",
        ) from error


def load(path: Path, state: dict[str, Any]) -> None:
    """Fill the tensors of `state` in place; all ranks call this."""
    dcp_load(state, checkpoint_id=path)


def latest(directory: str | Path) -> Path | None:
    """Return the newest complete checkpoint of a folder, None where there is none."""
    found = [path for path in Path(directory).glob("step-*") if (path / _NOTE).exists()]
    return max(found, key=lambda path: path.name, default=None)
