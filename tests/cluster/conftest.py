"""One session of two ranks for all tests that do not end it, and a look at processes."""

import os
import time
from pathlib import Path

import pytest

from workbench.session.connect import connect


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory):
    """Keep run store, logs and pointers of the tests apart from the person's own."""
    folder = tmp_path_factory.mktemp("home")
    before = dict(os.environ)
    os.environ["WORKBENCH_HOME"] = str(folder / "workbench")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(folder / "jupyter")
    os.environ["OMP_NUM_THREADS"] = "1"
    yield folder
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def shared_session():
    """Two ranks that all tests share; a test leaves them usable."""
    with connect(num_ranks=2, oversubscribe=True) as session:
        yield session


@pytest.fixture
def session(shared_session):
    """The shared session, checked to be ready, with torch's names on the ranks."""
    shared_session.run_cell("import os, sys, time, torch, torch.distributed as dist")
    return shared_session


def eventually(condition, *, within_s=10.0):
    """Return the condition's first true value; fail when it does not come in time."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    pytest.fail(f"did not happen within {within_s:g} s")


def processes_with(mark):
    """Return the command lines of live processes whose environment holds `mark`."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                if command:
                    found.append(f"{folder.name} {command.decode()}")
        except OSError:
            continue
    return found
