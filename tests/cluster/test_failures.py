"""What goes wrong on ranks: the cell ends, the guilty are named, the rest lives on."""

import os
import threading
import time

import pytest

from workbench.errors import RankError

pytestmark = pytest.mark.cluster

#: The issue's limits, for a machine whose cores are ours; see `within`.
RAISE_WITHIN_S = 1.0
LOSS_WITHIN_S = 2.0


def within(limit_s):
    """Return a limit, stretched by how many processes wait for each core.

    With other work on the machine every process gets its turn so much later; without,
    as in the project's own checks, the factor is 1 and the limit is the issue's.
    """
    return limit_s * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def works(session):
    """Whether the group computes the right sum on both ranks."""
    result = session.run_cell(
        "x = torch.ones(1) * (rank + 1); dist.all_reduce(x); x.item()"
    )
    return result.values == [3.0, 3.0]


def failing(session, code, **options):
    """Run a cell that fails; return its error and how long it took."""
    began_s = time.monotonic()
    with pytest.raises(RankError) as caught:
        session.run_cell(code, **options)
    return caught.value, time.monotonic() - began_s


def hashes(session):
    """Fingerprints of model, optimizer and random state on each rank."""
    return session.run_cell(
        "import hashlib, pickle\n"
        "hashlib.sha256(pickle.dumps([[p.tolist() for p in model.parameters()], "
        "str(optimizer.state_dict()), torch.get_rng_state().tolist()])).hexdigest()"
    ).values


def test_one_rank_raises_while_the_other_waits_in_a_collective(session):
    session.run_cell(
        "torch.manual_seed(rank); model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "model(torch.ones(4)).sum().backward(); optimizer.step()"
    )
    before = hashes(session)

    error, _ = failing(
        session, "if rank == 1: raise ValueError('bad')\ndist.all_reduce(torch.ones(3))"
    )

    assert error.ranks == (1,)
    assert "rank 0: was waiting in all_reduce of world" in str(error)
    assert "(3,) float32" in str(error)
    assert "at line 2: dist.all_reduce(torch.ones(3))" in str(error)
    assert works(session)
    assert hashes(session) == before


def test_a_raising_rank_ends_the_cell_within_a_second(session):
    code = "if rank == 1: raise ValueError('bad')\ndist.all_reduce(torch.ones(3))"

    _, took_s = failing(session, code)

    assert took_s < within(RAISE_WITHIN_S)


def test_one_rank_raises_while_the_other_waits_for_a_message(session):
    error, _ = failing(
        session, "if rank == 1: raise ValueError('bad')\ndist.recv(torch.ones(3), 1)"
    )

    assert error.ranks == (1,)
    assert "rank 0: was waiting in recv" in str(error)
    assert works(session)


def test_a_rank_that_only_computes_finishes_when_another_raises(session):
    error, _ = failing(
        session, "if rank == 1: raise ValueError('bad')\ntime.sleep(0.3); done = 1"
    )

    assert "rank 0: had finished" in str(error)
    assert session.get("done", ranks=0) == 1


def test_a_collective_that_another_rank_never_calls_is_named(session):
    error, took_s = failing(session, "if rank == 0: dist.all_reduce(torch.ones(3))")

    assert str(error).startswith(
        "RankError: rank 0 waited in all_reduce, which rank 1 never called"
    )
    assert "at line 1: if rank == 0: dist.all_reduce(torch.ones(3))" in str(error)
    assert took_s < within(
        4.0
    )  # 0.5 s until it is told, 0.5 s of waiting, and the rest
    assert works(session)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("dist.all_reduce(torch.ones(3))", "dist.all_reduce(torch.ones(4))"),
        ("dist.all_reduce(torch.ones(3))", "dist.broadcast(torch.ones(3), 0)"),
        (
            "dist.all_reduce(torch.ones(3))",
            "dist.all_reduce(torch.ones(3, dtype=torch.float64))",
        ),
    ],
    ids=["shape", "operation", "dtype"],
)
def test_mismatched_collectives_are_named_and_nobody_dies(session, mine, theirs):
    before = [rank.pid for rank in session.status().ranks]

    error, took_s = failing(session, f"if rank == 0:\n    {mine}\nelse:\n    {theirs}")

    text = str(error)
    assert "the ranks' collectives do not match" in text
    assert text.count("MismatchError") == 2  # the headline, and once for all ranks
    assert f"line 2: {mine}" in text
    assert f"line 4: {theirs}" in text
    assert took_s < within(LOSS_WITHIN_S)
    assert [rank.pid for rank in session.status().ranks] == before
    assert works(session)


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "signal SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "signal SIGSEGV"),
    ],
)
def test_a_rank_is_lost_and_started_again(session, how, cause):
    session.run_cell("kept = 5")
    generation = session.status().generation

    error, took_s = failing(
        session, f"if rank == 0: {how}\ndist.all_reduce(torch.ones(3))"
    )

    assert error.ranks == (0,)
    assert f"process ended ({cause}" in str(error)
    assert "its names are gone" in str(error)
    assert took_s < within(LOSS_WITHIN_S)
    session.run_cell("import os, sys, time, torch, torch.distributed as dist")
    assert works(session)
    assert session.status().generation > generation
    assert session.get("kept", ranks=1) == 5
    assert session.run_cell("'kept' in globals()").values == [False, True]


def stopped(session, code):
    """Run a cell that never ends, stop it, and return how long that took."""
    times = {}

    def stop():
        times["stop"] = time.monotonic()
        session.interrupt()

    thread = threading.Timer(0.3, stop)
    thread.start()
    error, _ = failing(session, code)
    thread.join()
    assert "was stopped: interrupted by the notebook" in str(error)
    return time.monotonic() - times["stop"]


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "time.sleep(60)",
        "dist.barrier() if rank else time.sleep(60)",
        "dist.recv(torch.ones(1), 0) if rank else time.sleep(60)",
        "y = torch.ones(256, 256)\nwhile True: y = (y @ y).clamp(0, 1)",
    ],
    ids=["python", "sleep", "collective", "message", "compute"],
)
def test_stop_reaches_every_rank_within_a_second(session, code):
    took_s = stopped(session, f"kept = 1\n{code}")

    assert took_s < within(1.0)
    assert works(session)
    assert session.get("kept") == [1, 1]


def test_a_time_out_stops_the_cell_and_says_so(session):
    error, took_s = failing(session, "time.sleep(60)", timeout=0.5)

    assert "ran longer than its time-out of 0.5 s" in str(error)
    assert took_s < within(0.5 + RAISE_WITHIN_S)


def test_a_swallowed_interrupt_is_followed_by_another(session):
    error, took_s = failing(
        session,
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    time.sleep(60)",
        timeout=0.2,
    )

    assert "was stopped" in str(error)
    assert took_s < within(4.0)  # the second signal comes 2 s after the first
    assert works(session)


def test_meshes_outlive_a_failure(session):
    failing(
        session, "if rank == 1: raise ValueError('bad')\ndist.all_reduce(torch.ones(3))"
    )

    result = session.run_cell(
        "x = torch.ones(1); dist.all_reduce(x, group=mesh.get_group()); x.item()"
    )

    assert result.values == [2.0, 2.0]


def test_restart_gives_fresh_ranks(session):
    session.run_cell("kept = 1")

    session.restart(ranks=1)

    assert session.run_cell("'kept' in globals()").values == [True, False]
    session.run_cell("import os, sys, time, torch, torch.distributed as dist")
    assert works(session)
