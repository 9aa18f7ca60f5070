"""Sessions begin, end and are refused; nothing of ours is left behind."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import eventually, processes_with
from workbench.errors import ClusterError, SessionError
from workbench.session.connect import connect

pytestmark = pytest.mark.cluster

OPEN_AND_WAIT = (
    "from workbench.session.connect import connect\n"
    "import time\n"
    "session = connect(num_ranks=2, oversubscribe=True)\n"
    "print('up', flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def mark():
    return f"WORKBENCH_TEST_MARK={secrets.token_hex(8)}"


def marked_notebook(mark, code=OPEN_AND_WAIT):
    """Start a process that plays the notebook, in a process group of its own."""
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, name: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    line = process.stdout.readline()
    assert line == "up\n", line + process.stdout.read()
    return process


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_notebook(mark, how):
    notebook = marked_notebook(mark)
    assert len(processes_with(mark)) >= 5  # notebook, host, zygote, store, two ranks

    notebook.send_signal(how)
    notebook.wait()
    notebook.stdout.close()

    eventually(lambda: not processes_with(mark), within_s=10)


def test_nothing_outlives_close(mark, tmp_path):
    code = OPEN_AND_WAIT.replace("time.sleep(60)", "session.close(); print('closed')")
    notebook = marked_notebook(mark, code)

    output, _ = notebook.communicate(timeout=30)

    assert output == "closed\n"
    assert processes_with(mark) == []


def test_a_signal_to_the_notebook_s_group_reaches_no_rank(mark):
    code = OPEN_AND_WAIT.replace(
        "time.sleep(60)",
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.killpg(0, signal.SIGINT)\n"
        "print(session.run_cell('rank').values)",
    )
    notebook = marked_notebook(mark, code)

    output, _ = notebook.communicate(timeout=30)

    assert output == "[0, 1]\n"


def test_a_killed_host_takes_its_ranks_along_and_the_notebook_is_told(mark):
    code = OPEN_AND_WAIT.replace(
        "time.sleep(60)",
        "import os, signal\n"
        "os.kill(session._host.pid, signal.SIGKILL)\n"
        "try:\n    session.run_cell('1')\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
        "time.sleep(20)",
    )
    notebook = marked_notebook(mark, code)

    assert notebook.stdout.readline() == "SessionError\n"
    eventually(lambda: len(processes_with(mark)) == 1, within_s=10)
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()


def test_a_session_is_over_when_closed():
    session = connect(num_ranks=1)

    session.close()

    assert session.closed
    assert "closed" in repr(session)
    with pytest.raises(SessionError, match="has ended"):
        session.run_cell("1")


def test_a_refused_session_leaves_nothing(own_home):
    cores = len(os.sched_getaffinity(0))

    with pytest.raises(ClusterError, match=f"{cores + 1} ranks were asked for"):
        connect(num_ranks=cores + 1)

    assert list((own_home / "jupyter").glob(f"workbench-{'?' * 9}.json")) == []


def test_an_unreachable_scheduler_is_said_within_seconds():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(ClusterError, match="no Dask scheduler answers") as caught:
        connect(f"tcp://127.0.0.1:{port}")

    assert "check the address" in caught.value.hint


def test_a_tls_address_without_certificates_is_refused_at_once():
    with pytest.raises(ClusterError, match="asks for certificates") as caught:
        connect("tls://127.0.0.1:8786")

    assert "security=distributed.Security(" in caught.value.hint


def test_ranks_run_on_a_dask_cluster_that_is_there_already():
    from distributed import LocalCluster
    from distributed.security import Security

    security = Security.temporary()
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        protocol="tls",
        security=security,
    ) as cluster:
        with connect(cluster, num_ranks=2) as session:
            result = session.run_cell(
                "import os, torch, torch.distributed as dist\n"
                "x = torch.ones(1); dist.all_reduce(x); (os.getppid(), x.item())"
            )
            (zygote_0, sum_0), (zygote_1, sum_1) = result.values
        assert (sum_0, sum_1) == (2.0, 2.0)
        assert zygote_0 != zygote_1
        assert len(cluster.scheduler_info["workers"]) == 2


def listening():
    """Return (address in hex, port) of every listening TCP socket of this machine."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                address, _, port = fields[1].partition(":")
                found.add((address, int(port, 16)))
    return found


def test_a_session_listens_on_loopback_only():
    before = listening()
    with connect(num_ranks=2, oversubscribe=True):
        new = listening() - before

    loopback = ("0100007F", "00000000000000000000000001000000")
    assert [entry for entry in new if entry[0] not in loopback] == []


def test_a_stranger_without_certificates_is_refused(session):
    from distributed import Client

    with pytest.raises((OSError, TypeError, ValueError)):
        Client(session.address, timeout=2)


def test_pointer_and_log_are_private(session, own_home):
    pointer = own_home / "jupyter" / f"workbench-{session.id}.json"

    assert pointer.stat().st_mode & 0o777 == 0o600
    assert session.log.stat().st_mode & 0o777 == 0o600
    door = Path(re.search(r'"door": "([^"]+)"', pointer.read_text()).group(1))
    assert door.parent.stat().st_mode & 0o777 == 0o700
    assert door.stat().st_mode & 0o177 == 0


def test_a_session_outlives_its_notebook_for_its_lease_and_is_joined(mark):
    code = OPEN_AND_WAIT.replace("oversubscribe=True", "oversubscribe=True, lease_s=30")
    code = code.replace(
        "time.sleep(60)", "session.run_cell('kept = rank + 7')\ntime.sleep(60)"
    )
    notebook = marked_notebook(mark, code)
    from workbench.session.attach import attach, running_sessions

    newest = eventually(running_sessions)[0].session
    first = attach(newest)
    eventually(lambda: first.run_cell("'kept' in globals()").values == [True, True])
    first.leave()
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()

    joined = attach(newest)

    assert joined.get("kept") == [7, 8]
    joined.close()
    eventually(lambda: not processes_with(mark), within_s=10)
