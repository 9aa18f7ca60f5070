"""The process that holds the rendezvous store, outside every rank.

A rank can therefore be lost, any rank, and the next generation still finds its store.
"""

import signal
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import TCPStore


def main(request: dict[str, Any], files: tuple[int, ...]) -> int:
    """Serve the store on a socket that listens already; ends with its zygote."""
    (listener,) = files
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store = TCPStore(
        request["host"],
        request["port"],
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=60),
        master_listen_fd=listener,
    )
    return _keep(store)


def _keep(store: TCPStore) -> int:
    """Hold on to the store until this process is killed."""
    while store.num_keys() >= 0:
        signal.pause()
    return 0
