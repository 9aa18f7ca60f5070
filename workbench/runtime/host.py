"""The session host: a process of its own that outlives cells and owns everything.

    python -m workbench.runtime.host <notebook socket fd> <session id> <directory>

It starts the zygote before anything else, so that torch's import and Dask's start run
side by side, and ends when the last notebook has gone and the lease is over.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from workbench.protocol.codec import from_frame
from workbench.protocol.frames import FrameParser
from workbench.protocol.messages import TO_HOST, Open
from workbench.runtime.launch import Launched, launch_zygote


def main() -> int:
    """Read what to open, start the zygote, then serve until the session ends."""
    began_s = time.monotonic()
    descriptor, session, folder = sys.argv[1:4]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    notebook = socket.socket(fileno=int(descriptor))
    order = _read_order(notebook)
    launched = None if order.address else launch_zygote(os.dup(2))
    _serve(order, notebook, launched, session, Path(folder), began_s)
    return 0


def _serve(
    order: Open,
    notebook: socket.socket,
    launched: Launched | None,
    session: str,
    folder: Path,
    began_s: float,
) -> None:
    # Only now: Dask's import takes most of the time that torch's takes in the zygote.
    import asyncio

    from workbench.runtime.keeper import Keeper
    from workbench.runtime.spawn import ZygoteClient

    keeper = Keeper(
        session=session,
        directory=folder,
        order=order,
        zygote=ZygoteClient(launched) if launched is not None else None,
        began_s=began_s,
    )
    asyncio.run(keeper.serve(notebook))


def _read_order(notebook: socket.socket) -> Open:
    """Return the first message: the notebook sends it before this process starts."""
    parser = FrameParser()
    while data := notebook.recv(1 << 16):
        for frame in parser.feed(data):
            order = from_frame(frame, TO_HOST)
            assert isinstance(order, Open)
            return order
    sys.exit("the notebook left before it said what to open")


if __name__ == "__main__":
    sys.exit(main())
