"""What a machine needs to run ranks, checked without starting any."""

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from workbench.cluster.devices import visible_devices
from workbench.units import GIB, MIB, bytes_text

#: A rank with torch imported shares most of its 156 MB with the others; torch itself
#: and a small net want about this much each.
_RANK_BYTES = 512 * MIB
_MIN_OPEN_FILES = 1024
_MIN_SHM_BYTES = 64 * MIB
#: The longest name below a session's folder is short; the limit of the system is 107.
_MAX_TMP_PATH_BYTES = 70
_PACKAGES = ("torch", "distributed", "ipykernel", "ipywidgets", "anywidget", "voila")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Args:
        what: What it is about, one or two words.
        text: What was found, with the numbers.
        fix: What to do; "" where all is well.
    """

    what: str
    text: str
    fix: str = ""


def check_machine() -> Iterator[Finding]:
    """Yield what was found, in the order in which it would stop a person."""
    yield _python()
    yield from _packages()
    yield _cores()
    yield _memory()
    yield _devices()
    yield _loopback()
    yield _open_files()
    yield _shared_memory()
    yield _temporary_folder()
    yield _gloo()


def _python() -> Finding:
    version = platform.python_version()
    fix = "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer"
    return Finding(what="python", text=f"{version} at {sys.executable}", fix=fix)


def _packages() -> Iterator[Finding]:
    for name in _PACKAGES:
        try:
            yield Finding(what=name, text=metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(what=name, text="missing", fix=f"pip install {name}")


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    fix = "" if cores > 1 else "ranks will take turns; pass oversubscribe=True"
    return Finding(what="cores", text=f"{cores} CPU cores for this process", fix=fix)


def _memory() -> Finding:
    free_bytes = _meminfo("MemAvailable")
    ranks = free_bytes // _RANK_BYTES
    fix = "" if ranks >= 2 else f"free {bytes_text(2 * _RANK_BYTES)} for two ranks"
    text = f"{bytes_text(free_bytes)} available, enough for {ranks} small ranks"
    return Finding(what="memory", text=text, fix=fix)


def _meminfo(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    return 0


def _devices() -> Finding:
    found = visible_devices()
    if not found:
        return Finding(what="GPUs", text="none; ranks compute on CPUs with gloo")
    return Finding(what="GPUs", text=f"{len(found)}, one rank each with backend='nccl'")


def _loopback() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
    except OSError as error:
        return Finding(
            what="loopback", text=f"cannot listen: {error}", fix="ip link set lo up"
        )
    return Finding(what="loopback", text=f"127.0.0.1 takes a port (tried {port})")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fix = "" if soft >= _MIN_OPEN_FILES else f"ulimit -n {min(hard, 65536)}"
    return Finding(what="open files", text=f"{soft} per process", fix=fix)


def _shared_memory() -> Finding:
    what = "shared memory"
    try:
        free_bytes = shutil.disk_usage("/dev/shm").free  # noqa: S108 that very mount
    except OSError:
        return Finding(
            what=what, text="none", fix="mount -t tmpfs tmpfs there, or ask who runs it"
        )
    fix = "" if free_bytes >= _MIN_SHM_BYTES else "docker run --shm-size=1g ..."
    return Finding(what=what, text=f"{bytes_text(free_bytes)} free", fix=fix)


def _temporary_folder() -> Finding:
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    free_bytes = shutil.disk_usage(folder).free if Path(folder).exists() else 0
    text = f"{folder}, {bytes_text(free_bytes)} free"
    if len(os.fsencode(folder)) > _MAX_TMP_PATH_BYTES:
        return Finding(what="sockets", text=text, fix="set TMPDIR to a shorter path")
    fix = "" if free_bytes > GIB / 8 else "free some space there, or set TMPDIR"
    return Finding(what="sockets", text=text, fix=fix)


def _gloo() -> Finding:
    return Finding(
        what="gloo",
        text="has no authentication: it is bound to loopback, or to the one interface "
        "that you name; name only one whose network you trust",
    )
