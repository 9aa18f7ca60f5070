"""Where the run store and the live feeds of this user are."""

import os
from pathlib import Path


def home() -> Path:
    """Return the folder of this user's runs: $WORKBENCH_HOME, else the XDG data folder.

    The folder is made on first use, readable by its owner alone.
    """
    named = os.environ.get("WORKBENCH_HOME")
    if named:
        folder = Path(named).expanduser()
    else:
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        folder = Path(data) / "workbench"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def store_path() -> Path:
    """Return the path of the run store (a SQLite file, which may not exist yet)."""
    return home() / "runs.db"


def feeds_dir() -> Path:
    """Return the 0700 folder in which live recorders say where they can be read."""
    folder = home() / "feeds"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
