"""Join a session that runs already."""

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import SessionError
from workbench.protocol.messages import Ready
from workbench.session.connection import Connection
from workbench.session.places import log_path, pointer_path
from workbench.session.session import Session

_PATIENCE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """The note that a session leaves for those who attach.

    Args:
        session: Its id.
        door: The Unix socket where it listens.
        started_s: Seconds since the epoch.
        pid: Of its host.
    """

    session: str
    door: Path
    started_s: float
    pid: int


def running_sessions() -> list[Pointer]:
    """Return this user's running sessions, the newest first."""
    folder = pointer_path("x").parent
    found = []
    for path in folder.glob("workbench-*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            note = json.loads(path.read_text())
            pointer = Pointer(
                session=note["session"],
                door=Path(note["door"]),
                started_s=note["started_s"],
                pid=note["pid"],
            )
            if pointer.door.exists() and _alive(pointer.pid):
                found.append(pointer)
    return sorted(found, key=lambda pointer: -pointer.started_s)


def attach(session: str | None = None) -> Session:
    """Return a running session: the named one, or the newest of this user.

    Args:
        session: Its id; None takes $WORKBENCH_SESSION, else the newest.

    Raises:
        SessionError: There is none, or it does not answer.
    """
    wanted = session or os.environ.get("WORKBENCH_SESSION")
    running = running_sessions()
    matching = [each for each in running if wanted in (None, each.session)]
    if not matching:
        names = ", ".join(each.session for each in running) or "none"
        raise SessionError(
            f"session {wanted} does not run" if wanted else "no session runs",
            hint=f"running: {names}; start one with %distributed up --lease 3600",
        )
    return _enter(matching[0])


def _enter(pointer: Pointer) -> Session:
    door = socket.socket(socket.AF_UNIX)
    try:
        door.connect(str(pointer.door))
    except OSError as error:
        door.close()
        raise SessionError(
            f"session {pointer.session} does not answer: {error}",
            hint="it may have just ended; see wb.runs() for what it recorded",
        ) from error
    connection = Connection(door)
    connection.start()
    connection.hello()
    ready = connection.coming_up.take(_PATIENCE_S)
    if not isinstance(ready, Ready):
        connection.hang_up()
        raise SessionError(f"session {pointer.session} does not answer")
    joined = Session(connection, ready, log_path(pointer.session), leased=True)
    joined.run = joined.status().run
    return joined


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
