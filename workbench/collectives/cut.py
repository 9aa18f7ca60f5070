"""Frees a rank from a blocked gloo call: shuts down the group's own connections.

Nothing of torch's own (abort, shutdown, destroy) frees a rank that waits in gloo;
ending its connections does, within milliseconds, and leaves the process intact.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_FDS = Path("/proc/self/fd")


def open_sockets() -> dict[int, str]:
    """Return this process's sockets: descriptor -> "socket:[inode]"."""
    found: dict[int, str] = {}
    for name in os.listdir(_FDS):  # noqa: PTH208 names only, in one call
        with suppress(OSError):
            target = os.readlink(_FDS / name)  # noqa: PTH115
            if target.startswith("socket:"):
                found[int(name)] = target
    return found


def _duplicate(fd: int) -> socket.socket | None:
    """Open a descriptor as a socket of our own; None where it is no TCP connection."""
    try:
        opened = socket.socket(fileno=os.dup(fd))
    except OSError:
        return None
    if (
        opened.family in (socket.AF_INET, socket.AF_INET6)
        and opened.type & socket.SOCK_STREAM
        and not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ):
        return opened
    opened.close()
    return None


@dataclass(kw_only=True)
class Connections:
    """The TCP connections that the groups of this rank opened.

    Args:
        store_port: Connections to the rendezvous store are never cut.
    """

    store_port: int
    _inodes: dict[int, str] = field(default_factory=dict)

    def learn(self, before: dict[int, str]) -> None:
        """Add what was opened since `before` was taken with `open_sockets`."""
        for fd, inode in open_sockets().items():
            if before.get(fd) != inode:
                self._inodes[fd] = inode

    def _alive(self) -> Iterator[socket.socket]:
        present = open_sockets()
        for fd, inode in list(self._inodes.items()):
            opened = _duplicate(fd) if present.get(fd) == inode else None
            if opened is not None:
                yield opened

    def cut(self) -> int:
        """Shut the connections down; returns how many. Safe from any thread."""
        count = 0
        for opened in self._alive():
            with opened, suppress(OSError):
                if opened.getpeername()[1] != self.store_port:
                    opened.shutdown(socket.SHUT_RDWR)
                    count += 1
        self._inodes.clear()
        return count
