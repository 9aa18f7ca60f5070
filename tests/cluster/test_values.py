"""Values to and from ranks."""

import subprocess
import sys

import numpy as np
import pytest

from workbench.errors import SessionError

pytestmark = pytest.mark.cluster


def test_what_is_put_is_there_on_every_rank(session):
    session.put(factor=3, table=np.arange(4))

    assert session.run_cell("int(factor * table.sum()) + rank").values == [18, 19]


def test_a_name_comes_back_from_each_rank(session):
    session.run_cell("mine = {'rank': rank}")

    assert session.get("mine") == [{"rank": 0}, {"rank": 1}]
    assert session.get("mine['rank']", ranks=1) == 1


def test_a_name_that_is_not_there_is_an_error_with_the_rank(session):
    with pytest.raises(SessionError, match="rank 0: NameError"):
        session.get("nothing_of_that_name")


def test_a_value_can_be_read_while_a_cell_runs(session):
    session.run_cell("step = 0")
    under_way = session._send_cell("step = 7; time.sleep(1)", None, None, None, 0)

    seen = session.get("step", ranks=0)

    assert seen in (0, 7)
    while not under_way.advance(0.1):
        continue
    under_way.result()


def test_a_notebook_without_torch_receives_tensors(session, own_home):
    """The other process attaches: it has loaded no torch, and afterwards still not."""
    session.run_cell("weights = torch.arange(6.).reshape(2, 3).to(torch.bfloat16)")
    code = (
        "import sys; from workbench.session.attach import attach\n"
        "session = attach()\n"
        "print(session.get('weights', ranks=1).tolist(), 'torch' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50
    )

    assert done.stdout.strip() == "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] False", (
        done.stderr
    )
