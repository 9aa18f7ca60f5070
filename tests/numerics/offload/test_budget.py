"""Under a budget that the kernel enforces, only the feature under test gets through."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.numerics.offload import capped
from workbench.errors import OffloadError
from workbench.offload import budget
from workbench.units import MIB

SCRIPT = Path(__file__).with_name("capped.py")
#: Two processes of their own, each of which imports torch.
pytestmark = pytest.mark.timeout(180)

ALLOCATOR_ERROR = "DefaultCPUAllocator: can't allocate memory"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    code: int
    limit_bytes: int
    losses: list[float]
    data_bytes: int
    anonymous_bytes: int
    error: str


def run(how: str, cap_bytes: int) -> Outcome:
    """Run the script; read its memory from outside whenever it says something."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), how, str(cap_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        lines, data, anonymous = [], [0], [0]
        for line in process.stdout:
            lines.append(line)
            data.append(budget.status_bytes("VmData", pid=process.pid))
            anonymous.append(budget.status_bytes("RssAnon", pid=process.pid))
            process.stdin.write("\n")
        error = process.stderr.read()
    return Outcome(
        code=process.returncode,
        limit_bytes=int(lines[0]),
        losses=[float(line) for line in lines[1:]],
        data_bytes=max(data),
        anonymous_bytes=max(anonymous),
        error=error,
    )


def test_states_of_8_times_the_cap_train_streamed_and_fail_plain() -> None:
    cap_bytes = capped.STATE_BYTES // 8

    plain = run("plain", cap_bytes)
    free: list[float] = []
    capped.plain(3, free.append)
    streamed = run("streamed", cap_bytes)

    assert plain.code != 0
    assert plain.losses == []
    assert ALLOCATOR_ERROR in plain.error
    assert (streamed.code, streamed.error) == (0, "")
    assert streamed.losses == free
    assert streamed.data_bytes <= streamed.limit_bytes


def test_activations_beyond_the_cap_train_swapped_and_fail_plain() -> None:
    cap_bytes = 40 * MIB  # the activations are 65 times 2 MiB

    plain = run("unswapped", cap_bytes)
    swapped = run("swapped", cap_bytes)

    assert ALLOCATOR_ERROR in plain.error
    assert (swapped.code, len(swapped.losses)) == (0, 2)
    assert swapped.data_bytes <= swapped.limit_bytes


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(OffloadError, match="holds nothing"):
        budget.enforce(0)
