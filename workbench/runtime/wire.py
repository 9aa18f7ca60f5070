"""Small messages with open files between a supervisor and its zygote (one host).

Each message is one datagram-like packet on a SOCK_SEQPACKET pair: JSON, and file
descriptors beside it.
"""

import array
import json
import socket
from typing import Any

_MAX_BYTES = 1 << 20
_MAX_FILES = 8


def send(
    channel: socket.socket, message: dict[str, Any], files: tuple[int, ...] = ()
) -> None:
    """Send one message; the files stay open here too."""
    socket.send_fds(channel, [json.dumps(message).encode()], list(files))


def receive(channel: socket.socket) -> tuple[dict[str, Any], tuple[int, ...]] | None:
    """Return the next message and its files, or None when the other end is gone."""
    data, files, _, _ = _receive_fds(channel)
    if not data:
        return None
    message: dict[str, Any] = json.loads(data)
    return message, files


def _receive_fds(
    channel: socket.socket,
) -> tuple[bytes, tuple[int, ...], int, Any]:
    files = array.array("i")
    data, ancillary, flags, address = channel.recvmsg(
        _MAX_BYTES, socket.CMSG_LEN(_MAX_FILES * files.itemsize)
    )
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(payload) - len(payload) % files.itemsize
            files.frombytes(payload[:whole])
    return data, tuple(files), flags, address
