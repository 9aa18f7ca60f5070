"""Start a zygote with nothing but subprocess, so that its imports begin at once."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A zygote whose imports run.

    Args:
        process: The process.
        channel: Our end of the channel to it.
    """

    process: "subprocess.Popen[bytes]"
    channel: socket.socket


def launch_zygote(log: int) -> Launched:
    """Start the process; must be called in the thread that lives longest.

    The kernel ties the zygote's life to that thread, see `ties.die_with_parent`.

    Args:
        log: File descriptor that receives what the zygote itself prints.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen(
            _command(there.fileno()),
            pass_fds=(there.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(),
            start_new_session=True,
        )
    return Launched(process=process, channel=here)


def _command(channel: int) -> list[str]:
    module = "workbench.runtime.zygote"
    return [sys.executable, "-m", module, str(channel), str(os.getpid())]


def _environment() -> dict[str, str]:
    """Return the zygote's variables: one compute thread until a rank knows better."""
    quiet = {
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    return {**os.environ, **quiet}
