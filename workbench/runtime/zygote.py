"""The zygote: a process with torch imported that forks ranks in milliseconds.

It stays single-threaded and opens no device, so that what it forks is clean. It ends
when its supervisor's end of the channel closes, and takes every rank with it.

    python -m workbench.runtime.zygote <channel fd> <supervisor pid>
"""

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from typing import Any

from workbench.runtime import ties, wire

#: Imported once, before any fork; in this order, so that a failure names the culprit.
PRELOADED = (
    "torch",
    "torch.distributed",
    "workbench.runtime.shell",
    "workbench.runtime.rank",
)


class Zygote:
    """Serves fork requests until the channel closes."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._children: set[int] = set()
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> None:
        """Answer requests and report exits."""
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        wire.send(self._channel, {"event": "ready", "pid": os.getpid()})
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self._wake in ready:
                    self._report_exits()
                if self._channel.fileno() in ready and not self._answer():
                    return

    def kill_children(self) -> None:
        """Kill every rank with what it started."""
        for pid in self._children:
            ties.kill_session(pid)

    def _report_exits(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)
            ties.kill_group(pid)
            code = os.waitstatus_to_exitcode(status)
            wire.send(self._channel, {"event": "exited", "pid": pid, "code": code})

    def _answer(self) -> bool:
        received = wire.receive(self._channel)
        if received is None:
            return False
        request, files = received
        pid = os.fork()
        if pid == 0:
            self._become(request, files)
        self._children.add(pid)
        for file in files:
            os.close(file)
        event = {"event": "forked", "request": request["request"], "pid": pid}
        wire.send(self._channel, event)
        return True

    def _become(self, request: dict[str, Any], files: tuple[int, ...]) -> None:
        """Turn the forked copy into a rank or the store; never returns."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            gc.enable()
            ties.die_with_parent(request["zygote"])
            self._channel.close()
            code = _run(request, files)
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 1
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _run(request: dict[str, Any], files: tuple[int, ...]) -> int:
    # Imported already; the names are looked up here to keep this module light.
    if request["role"] == "store":
        store = importlib.import_module("workbench.runtime.store_process")
        return int(store.main(request, files))
    rank = importlib.import_module("workbench.runtime.rank")
    return int(rank.main(request, files))


def _end(*_: object) -> None:
    """End at once; `main` kills the children on the way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def main() -> int:
    """Import, then serve; the exit code says whether the imports went well."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    ties.die_with_parent(int(sys.argv[2]), signal.SIGTERM)
    zygote = Zygote(channel)
    signal.signal(signal.SIGTERM, _end)
    try:
        # Nothing of an import is garbage: without the collector it is a fifth faster.
        gc.disable()
        for name in PRELOADED:
            importlib.import_module(name)
        # What is here now stays: keep the collector from touching shared pages.
        gc.collect()
        gc.freeze()
        zygote.serve()
    except ImportError as error:
        wire.send(channel, {"event": "failed", "reason": str(error)})
        return 1
    finally:
        zygote.kill_children()
    return 0


if __name__ == "__main__":
    # Not sys.exit: torch's clean-up at exit takes long and does nothing for us.
    os._exit(main())
