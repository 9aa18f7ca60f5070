"""Ties between processes: who dies with whom, and who hears which signal."""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, sent: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when the thread that started it ends.

    Args:
        parent: Process id of the parent as the parent knew it: it may be gone already.
        sent: Which signal.
    """
    if sys.platform != "linux":
        return  # elsewhere the end of the pipe from the parent has to do
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(sent), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), sent)


def kill_session(pid: int) -> None:
    """Kill a live process that leads its own session, and what it started in it."""
    kill_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill what a process has left behind in the group that it led."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def exit_cause(code: int, memory_bytes: int = 0) -> str:
    """Return in words why a process ended; `code` is negative for a signal.

    >>> exit_cause(3)
    'exit code 3'
    >>> exit_cause(-11)
    'signal SIGSEGV (a fault in native code)'
    """
    if code >= 0:
        return f"exit code {code}"
    names = {
        signal.SIGSEGV: "a fault in native code",
        signal.SIGABRT: "native code gave up",
        signal.SIGKILL: "killed from outside or by the kernel's memory guard",
        signal.SIGBUS: "memory behind a mapping went away",
    }
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"signal {-code}"
    why = f" ({names[number]})" if number in names else ""
    cap = f", its memory cap was {memory_bytes} bytes" if memory_bytes else ""
    return f"signal {number.name}{why}{cap}"
