"""A session as a job: its layout, its cells in order, and scripts that start them."""

import ast
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.errors import SessionError
from workbench.layout import Layout
from workbench.protocol.spans import label


@dataclass(frozen=True, kw_only=True)
class RanCell:
    """A cell that ran to its end.

    Args:
        code: Its source.
        ranks: Where it ran; None for everywhere.
    """

    code: str
    ranks: Sequence[int] | None


def write_job(folder: Path, history: Mapping[str, Any]) -> Path:
    """Write a job's folder and return its script.

    Args:
        folder: Made where it is missing; files of an earlier export are replaced.
        history: The host's answer: `cells` in the order in which they ran, `layout`
            (TOML) and `plan_json` ("" outside a run).

    Raises:
        SessionError: A cell is no plain Python.
    """
    cells = [RanCell(code=row["code"], ranks=row["ranks"]) for row in history["cells"]]
    layout = Layout.from_toml(history["layout"])
    plan_json = history["plan_json"]
    script = _script(cells)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(script)
    (folder / "layout.toml").write_text(layout.to_toml())
    (folder / "requirements.txt").write_text(_requirements())
    plan = folder / "plan.json"
    if plan_json:
        plan.write_text(plan_json)
    else:
        plan.unlink(missing_ok=True)
    _executable(folder / "run.sh", _torchrun(layout.num_ranks))
    _executable(folder / "run.slurm", _slurm(layout.num_ranks))
    return folder / "train.py"


def _script(cells: list[RanCell]) -> str:
    parts = [
        '"""The cells of a Workbench session, in order; see run.sh and run.slurm."""\n'
        "import os\n\n"
        "from workbench.runtime.job import enter\n\n"
        "globals().update(enter(\n"
        "    os.path.dirname(os.path.abspath(__file__)),\n"
        '    interface=os.environ.get("WORKBENCH_INTERFACE"),\n'
        "))\n"
    ]
    parts += [_part(number, cell) for number, cell in enumerate(cells, start=1)]
    return "\n".join(parts)


def _part(number: int, cell: RanCell) -> str:
    """Return one cell as Python, under the condition of its ranks."""
    try:
        ast.parse(cell.code)
    except SyntaxError as error:
        raise SessionError(
            f"cell {number} cannot be exported, it is not plain Python: {error}",
            hint="write magics and shell lines as Python, e.g. subprocess.run(...)",
        ) from error
    if cell.ranks is None:
        return f"# %% cell {number}\n{cell.code.rstrip()}\n"
    body = "\n".join(f"    {line}".rstrip() for line in cell.code.rstrip().split("\n"))
    where = label(cell.ranks)
    return f"# %% cell {number}, {where}\nif rank in {list(cell.ranks)!r}:\n{body}\n"


def _torchrun(num_ranks: int) -> str:
    return (
        "#!/bin/sh\n"
        "# One host. pip install -r requirements.txt first.\n"
        'cd "$(dirname "$0")"\n'
        f'exec "${{PYTHON:-{sys.executable}}}" -m torch.distributed.run '
        f"--standalone --nproc-per-node={num_ranks} train.py\n"
    )


def _slurm(num_ranks: int) -> str:
    return (
        "#!/bin/sh\n"
        "#SBATCH --job-name=workbench\n"
        "#SBATCH --nodes=1\n"
        "#SBATCH --ntasks-per-node=1\n"
        f"# Add your site's line for {num_ranks} devices, e.g. --gpus-per-node.\n"
        f"# More nodes: raise --nodes, divide {num_ranks} below by their number, and set\n"
        "# WORKBENCH_INTERFACE to the interface that joins them.\n"
        'cd "$SLURM_SUBMIT_DIR"\n'
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        f"srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node={num_ranks} "
        '--rdzv-backend=c10d --rdzv-endpoint="$head:29500" train.py\n'
    )


def _requirements() -> str:
    names = ("torch", "numpy", "workbench-distributed")
    return "".join(f"{name}=={metadata.version(name)}\n" for name in names)


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
