"""Folders and files of sessions on this machine."""

import os
import tempfile
from pathlib import Path

from workbench.errors import SessionError
from workbench.telemetry.paths import home

#: Unix sockets have paths of at most 107 bytes; the longest name below is short.
_MAX_PATH_BYTES = 90


def make_session_dir(session: str) -> Path:
    """Return a new folder for a session's sockets, open to this user alone.

    Raises:
        SessionError: The folder's path is too long for a socket.
    """
    run_dir = os.environ.get("XDG_RUNTIME_DIR")
    parent = run_dir if run_dir and os.access(run_dir, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"wb-{session}-", dir=parent))
    if len(os.fsencode(folder)) > _MAX_PATH_BYTES:
        folder.rmdir()
        raise SessionError(
            f"the folder {folder} has a path of more than {_MAX_PATH_BYTES} bytes",
            hint="set TMPDIR (or XDG_RUNTIME_DIR) to a shorter one",
        )
    return folder


def pointer_path(session: str) -> Path:
    """Return where a session leaves a note for those who attach."""
    from jupyter_core.paths import jupyter_runtime_dir

    return Path(jupyter_runtime_dir()) / f"workbench-{session}.json"


def log_path(session: str) -> Path:
    """Return the file that receives all output of a session's ranks."""
    folder = home() / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{session}.log"
