"""The session host: a process of its own that outlives cells and owns everything.

    python -m workbench.runtime.host <notebook socket fd> <session id> <directory>

It starts the zygote before anything else, so that torch's import and Dask's start run
side by side, and ends when the last notebook has gone and the lease is over.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.protocol.codec import from_frame
from workbench.protocol.frames import FrameParser
from workbench.protocol.messages import TO_HOST, Open
from workbench.runtime.spawn import ZygoteClient

if TYPE_CHECKING:
    from workbench.runtime.keeper import Keeper


def main() -> int:
    """Read what to open, start the zygote, then serve until the session ends."""
    began_s = time.monotonic()
    descriptor, session, folder = sys.argv[1:4]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    notebook = socket.socket(fileno=int(descriptor))
    order = _read_order(notebook)
    zygote = None if order.address else ZygoteClient(os.dup(2))
    from workbench.runtime.keeper import Keeper

    keeper = Keeper(
        session=session,
        directory=Path(folder),
        order=order,
        zygote=zygote,
        began_s=began_s,
    )
    asyncio.run(_serve(keeper, notebook))
    return 0


async def _serve(keeper: "Keeper", notebook: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, keeper.close, f"signal {number.name}")
    await keeper.serve(notebook)


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
