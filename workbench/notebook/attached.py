"""The extension of the kernel `workbench-attach`: load the magics, join a session."""

import sys
from typing import Any

from workbench.errors import SessionError
from workbench.notebook.extension import load
from workbench.session.attach import attach


def load_ipython_extension(shell: Any) -> None:
    """Register the magics and join $WORKBENCH_SESSION, else the newest session.

    Without one the kernel works all the same, and says how to start one.
    """
    load(shell)
    try:
        shell.push({"session": attach()})
    except SessionError as error:
        print(error, file=sys.stderr)  # noqa: T201 before the first cell, for its reader
