"""What a session can be started with: memory caps, variables, many ranks, much output."""

import io
import time

import pytest

from workbench.errors import RankError
from workbench.session.connect import connect
from workbench.session.view import TextView

pytestmark = pytest.mark.cluster

MIB = 1024 * 1024


def test_a_memory_cap_is_an_error_that_a_rank_survives():
    with connect(num_ranks=1, memory_bytes=400 * MIB) as session:
        session.run_cell("import torch; kept = torch.ones(8)")

        with pytest.raises(RankError, match="can't allocate memory"):
            session.run_cell(f"torch.empty({1024 * MIB}, dtype=torch.uint8).fill_(1)")

        assert session.get("float(kept.sum())", ranks=0) == 8.0


def test_variables_reach_the_ranks():
    with connect(
        num_ranks=1, environment={"WORKBENCH_TEST_COLOUR": "green"}
    ) as session:
        result = session.run_cell("import os; os.environ['WORKBENCH_TEST_COLOUR']")

    assert result.values == ["green"]


def test_sixteen_ranks_share_the_cores_and_group_their_output():
    """The small form of 64 ranks, which `make soak` runs."""
    output = io.StringIO()
    with connect(num_ranks=16, oversubscribe=True) as session:
        view = TextView(tuple(range(16)), output, output, grace_s=10.0)
        result = session.run_cell(
            "import torch, torch.distributed as dist\n"
            "x = torch.ones(1); dist.all_reduce(x); print('sum', x.item()); rank",
            view=view,
        )

    assert result.values == list(range(16))
    assert output.getvalue() == "ranks 0-15 | sum 16.0\n"


def test_many_lines_from_both_ranks_are_whole_in_the_log(session):
    began_s = time.monotonic()
    session.run_cell(
        "for n in range(20_000): print('volume', rank, n)",
        view=TextView((0, 1), io.StringIO(), io.StringIO()),
    )
    took_s = time.monotonic() - began_s

    lines = [
        line.split(" | ")[1]
        for line in session.log.read_text().splitlines()
        if " | volume " in line
    ]
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"volume {rank} ")]
        assert mine == [f"volume {rank} {n}" for n in range(20_000)]
    assert took_s < 30.0  # 0.6 s of the 3 s for five times as many, idle
