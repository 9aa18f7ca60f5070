"""Bring a session up, here or on a cluster that is there already."""

import os
import secrets
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench import errors
from workbench.cluster.devices import visible_devices
from workbench.cluster.placement import Room, place
from workbench.errors import ClusterError, SessionError, WorkbenchError
from workbench.protocol.codec import to_frame
from workbench.protocol.frames import pack
from workbench.protocol.messages import Closed, Open, Ready
from workbench.session.connection import Connection
from workbench.session.places import log_path, make_session_dir, pointer_path

if TYPE_CHECKING:
    from workbench.planner.contract import Plan
    from workbench.session.session import Session

Backend = Literal["gloo", "nccl"]

#: The host says itself why it does not stand, after 120 s at most.
_PATIENCE_S = 130.0


def connect(
    target: Any = None,
    *,
    num_ranks: int | None = None,
    backend: Backend | None = None,
    security: Any = None,
    environment: dict[str, str] | None = None,
    memory_bytes: int = 0,
    interface: str = "",
    oversubscribe: bool = False,
    lease_s: float = 0.0,
) -> "Session":
    """Return a session whose group of ranks stands and is checked.

    Args:
        target: None starts Dask on this machine; an address ("tls://host:port") or a
            Dask cluster object is used as it is.
        num_ranks: None for one per GPU, or two on CPUs.
        backend: "gloo" on CPUs, "nccl" on GPUs; None takes NCCL where this machine has
            a GPU for every rank and torch can use it.
        security: `distributed.Security` for an address; a cluster object has its own.
        environment: Extra variables for every rank.
        memory_bytes: Cap of each rank's data memory beyond what it starts with.
        interface: Network interface of the group; "" for loopback.
        oversubscribe: Allow more ranks than CPU cores.
        lease_s: How long the session outlives its last notebook.

    Raises:
        ClusterError: No scheduler there, no workers, or too few cores or devices.
        SessionError: The session could not be started.

    >>> session = connect(num_ranks=2)  # doctest: +SKIP
    """
    address, credentials = _target(target, security)
    backend = backend or _backend_here(address, num_ranks)
    if not address and num_ranks is not None:
        _check_here(num_ranks, backend, oversubscribe=oversubscribe)
    session = secrets.token_hex(4)
    order = Open(
        num_ranks=num_ranks or 0,
        backend=backend,
        address=address,
        security=credentials,
        environment=environment or {},
        memory_bytes=memory_bytes,
        interface=interface,
        oversubscribe=oversubscribe,
        lease_s=lease_s,
        pointer=str(pointer_path(session)),
        log=str(log_path(session)),
    )
    return _start(session, order)


def launch(plan: "Plan", *, name: str, **options: Any) -> "Session":
    """Return a session with the plan's ranks in which a run has begun.

    Args:
        plan: What to run.
        name: Of the run.
        **options: As `connect` takes them.

    Raises:
        ClusterError: This machine or cluster has too few cores or devices.
    """
    session = connect(num_ranks=plan.layout.num_ranks, **options)
    try:
        session.begin_run(plan, name)
    except BaseException:
        session.close()
        raise
    return session


def _backend_here(address: str, num_ranks: int | None) -> Backend:
    """Return NCCL where every rank gets a GPU of this machine, else gloo."""
    num_devices = 0 if address else len(visible_devices())
    with_cuda = not metadata.version("torch").endswith("+cpu")
    enough = num_devices >= (num_ranks or 1)
    return "nccl" if with_cuda and enough else "gloo"


def _check_here(num_ranks: int, backend: str, *, oversubscribe: bool) -> None:
    """Refuse too many ranks before anything is started."""
    if num_ranks < 1:
        raise ClusterError(
            f"{num_ranks} ranks were asked for", hint="ask for at least 1"
        )
    if backend == "gloo":
        room = Room(host=socket.gethostname(), cores=len(os.sched_getaffinity(0)))
        place(num_ranks, (room,), backend=backend, oversubscribe=oversubscribe)


def _target(target: Any, security: Any) -> tuple[str, dict[str, Any]]:
    """Return address and credentials of a target."""
    if target is None:
        return "", {}
    if isinstance(target, str):
        if target.startswith("tls://") and security is None:
            raise ClusterError(
                f"{target} asks for certificates and none were given",
                hint="pass security=distributed.Security(tls_ca_file=..., "
                "tls_client_cert=..., tls_client_key=...)",
            )
        return target, _credentials(security)
    address = getattr(target, "scheduler_address", None)
    if not isinstance(address, str) or not address:
        raise ClusterError(
            f"{target!r} is neither an address nor a running Dask cluster",
            hint='pass "tls://host:port", or a cluster such as distributed.LocalCluster',
        )
    return address, _credentials(security or getattr(target, "security", None))


def _credentials(security: Any) -> dict[str, Any]:
    """Return a `distributed.Security` as what made it; the host makes its own."""
    if security is None:
        return {}
    names = ["require_encryption", "tls_ca_file"]
    for role in ("client", "scheduler", "worker"):
        names += [f"tls_{role}_cert", f"tls_{role}_key"]
    found = {name: getattr(security, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _start(session: str, order: Open) -> "Session":
    folder = make_session_dir(session)
    here, there = socket.socketpair()
    # The host reads its order before it does anything, so it is there when it looks.
    here.sendall(pack(to_frame(order)))
    log = Path(order.log)
    with there, log.with_suffix(".host.log").open("ab") as host_log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "workbench.runtime.host",
                str(there.fileno()),
                session,
                str(folder),
            ],
            pass_fds=(there.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=host_log,
            stderr=host_log,
            start_new_session=True,
        )
    # Only now, while the host comes up: what the notebook holds takes a while to load.
    from workbench.session.session import Session

    connection = Connection(here)
    connection.start()
    try:
        ready = _wait_ready(connection)
    except BaseException:
        _give_up(connection, process)
        raise
    return Session(connection, ready, log, process, leased=order.lease_s > 0)


def _wait_ready(connection: Connection) -> Ready:
    """Wait for the group, in short steps so that Ctrl-C gets through."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        match connection.coming_up.take(0.1):
            case Ready() as ready:
                return ready
            case Closed() as closed:
                raise _why(closed)
    raise SessionError(f"the session host said nothing for {_PATIENCE_S:.0f} s")


def _why(closed: Closed) -> WorkbenchError:
    """Return the host's error as its own class."""
    kinds: dict[str, type[WorkbenchError]] = {
        "ClusterError": errors.ClusterError,
        "SessionError": errors.SessionError,
    }
    kind = kinds.get(closed.error, SessionError)
    return kind(closed.reason, hint=closed.hint or None)


def _give_up(connection: Connection, process: subprocess.Popen[bytes]) -> None:
    """Hang up, which ends the host; make sure of it."""
    connection.hang_up()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
