"""One rank: its main thread runs cells, its control thread listens and interrupts."""

import faulthandler
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from typing import Any

import torch

from workbench.protocol.messages import CellStatus, ErrorReport, Waiting
from workbench.protocol.orders import (
    AskRank,
    CellEnded,
    Execute,
    FormGroup,
    GroupFormed,
    PeersLeft,
    RankDisplay,
    RankStarted,
    StopCell,
)
from workbench.runtime.answers import Answers
from workbench.runtime.channel import Channel
from workbench.runtime.gate import Gate
from workbench.runtime.membership import MESSAGES, Membership
from workbench.runtime.names import Names
from workbench.runtime.shell import Shown, cell_line_of, make_shell, warm
from workbench.runtime.tap import Tap
from workbench.runtime.tensors import value_parts
from workbench.sensors.sampler import MemorySampler
from workbench.telemetry import Event

#: A call that is open for this long while a peer has left will not end by itself.
_STUCK_S = 0.05
#: The same where the peer has run the cell to its end: its last messages may be on
#: their way.
_NEVER_COMING_S = 0.5
#: A wait that has not ended after this long is cut and signalled.
_INSIST_AFTER_S = 0.2


def main(request: dict[str, Any], files: tuple[int, ...]) -> int:
    """Live as a rank in this freshly forked process, until the supervisor is gone.

    Args:
        request: rank, incarnation, environment, memory_bytes, threads, device.
        files: Control socket, standard output, standard error.
    """
    control, output, errors = files
    _take_stdio(output, errors)
    os.environ.update(request["environment"])
    faulthandler.enable()
    torch.set_num_threads(max(1, request["threads"]))
    if request["memory_bytes"]:
        _cap_memory(request["memory_bytes"])
    process = RankProcess(request, Channel(socket.socket(fileno=control)))
    process.run()
    return 0


def _take_stdio(output: int, errors: int) -> None:
    """Make the pipes this process's standard streams, line by line."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(source, target)
        os.close(source)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(  # noqa: SIM115 lives as long as the process
            number, "w", encoding="utf-8", errors="replace", newline="\n", closefd=False
        )
        stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115


def _cap_memory(allowed_bytes: int) -> None:
    """Let data memory grow by that much from here; beyond, the allocator raises."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        data_pages = int(file.read().split()[5])
    cap = data_pages * resource.getpagesize() + allowed_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (cap, hard))


class RankProcess:
    """What the two threads of a rank share."""

    def __init__(self, request: dict[str, Any], channel: Channel) -> None:
        self.rank: int = request["rank"]
        self._incarnation: int = request["incarnation"]
        self._device: str = request["device"]
        self._channel = channel
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._gate = Gate()
        self._tap = Tap(self.rank, channel)
        self._members = Membership(self.rank, self._tap.record, cell_line_of)
        self._shell = make_shell(self._show, self._gate.shut)
        self._names = Names(self._shell.user_ns, self._members, self._device)
        self._sampler = MemorySampler(self._sample)
        self._answers = Answers(self._shell, self._names, self._members)
        self._cell = ""
        self._stuck_in: tuple[Waiting, ...] = ()

    def run(self) -> None:
        """Serve until the supervisor is gone."""
        threading.Thread(
            target=self._listen, name="workbench-control", daemon=True
        ).start()
        self._tap.start(first=warm)
        self._sampler.start()
        self._channel.send(
            RankStarted(rank=self.rank, incarnation=self._incarnation, pid=os.getpid())
        )
        while True:
            job = self._jobs.get()
            match job:
                case Execute():
                    self._execute(job)
                case FormGroup():
                    self._form(job)
                case AskRank():
                    self._channel.send(self._answers.answer(job))

    # --- control thread

    def _listen(self) -> None:
        for message in self._channel.messages():
            match message:
                case StopCell():
                    self._stop(message)
                case PeersLeft():
                    self._apart(self._free_when_stuck, message)
                case FormGroup():
                    self._gate.stop("forming", "interrupted")
                    self._members.cut() if self._gate.running == "forming" else None
                    self._jobs.put(message)
                case AskRank() if self._gate.running:
                    # The main thread is busy; what can be told without it is told.
                    self._channel.send(self._answers.answer_while_busy(message))
                case _:
                    self._jobs.put(message)
        os.kill(os.getpid(), signal.SIGKILL)

    def _apart(self, work: Any, message: Any) -> None:
        threading.Thread(target=work, args=(message,), daemon=True).start()

    def _stop(self, message: StopCell) -> None:
        """Interrupt the cell: by a signal, or by ending the wait that it sits in."""
        self._stuck_in = self._members.waiting()
        if any(call.op in MESSAGES for call in self._stuck_in):
            if self._gate.mark(message.cell, message.status):
                self._members.cut()
        else:
            self._gate.stop(message.cell, message.status)
        self._apart(self._insist, message)

    def _free_when_stuck(self, message: PeersLeft) -> None:
        """Leave the next collective that cannot end: some of its ranks will not come."""
        while self._gate.running == message.cell:
            stuck = self._members.waiting_for(message.failed, _STUCK_S)
            stuck += self._members.waiting_for(message.finished, _NEVER_COMING_S)
            if stuck:
                self._stuck_in = stuck
                self._gate.mark(message.cell, "freed")
                self._members.cut()
                self._insist(StopCell(cell=message.cell, status="freed"))
                return
            time.sleep(0.01)

    def _insist(self, message: StopCell) -> None:
        """End a wait that the first step has not ended."""
        deadline_s = time.monotonic() + _INSIST_AFTER_S
        while self._gate.running == message.cell and time.monotonic() < deadline_s:
            time.sleep(0.01)
        if self._gate.running == message.cell and self._members.waiting():
            self._members.cut()
            self._gate.stop(message.cell, message.status)

    # --- main thread

    def _form(self, order: FormGroup) -> None:
        began_s = time.monotonic()
        error = ""
        self._gate.enter("forming")
        try:
            self._members.form(order)
            self._names.follow(order.run, order.plan_json)
            self._names.regroup()
        except (Exception, KeyboardInterrupt) as problem:
            error = f"{type(problem).__name__}: {problem}"
        finally:
            self._gate.leave()
        self._channel.send(
            GroupFormed(
                rank=self.rank,
                generation=order.generation,
                error=error,
                seconds=time.monotonic() - began_s,
            )
        )

    def _execute(self, job: Execute) -> None:
        began_s = time.monotonic()
        self._cell, self._stuck_in = job.cell, ()
        self._members.guard.watch(on=job.guarded)
        self._gate.enter(job.cell)
        try:
            went_well = self._shell.run(job.code, job.number)
            self._gate.leave()
        except KeyboardInterrupt as stop:
            # It came between the person's code and the shell's own.
            self._gate.leave()
            went_well, self._shell.last_exception = False, stop
        seconds = time.monotonic() - began_s
        self._channel.send(self._ended(job, seconds, went_well=went_well))

    def _ended(self, job: Execute, seconds: float, *, went_well: bool) -> CellEnded:
        """Return how the cell ended; what it printed and did is on its way before."""
        _flush()
        self._tap.drain()
        status, waiting = self._judge(went_well=went_well)
        return CellEnded(
            rank=self.rank,
            cell=job.cell,
            status=status,
            seconds=seconds,
            clean=not waiting and not self._members.waiting(),
            issued=self._members.issued(),
            error=None if went_well else self._error(),
            waiting=waiting,
            bundle=self._shell.last_bundle if went_well else {},
            buffers=value_parts(self._shell.last_value) if went_well else (),
        )

    def _judge(self, *, went_well: bool) -> tuple[CellStatus, tuple[Waiting, ...]]:
        """Return how to call the end of a cell, and the calls that it was stuck in."""
        if went_well:
            return "ok", ()
        if self._gate.stopped is not None:
            return self._gate.stopped, self._stuck_in
        broken = self._members.broken_call(self._shell.last_exception)
        if broken is not None:
            return "freed", (broken,)
        return "error", ()

    def _error(self) -> ErrorReport:
        kept = self._shell.last_error
        if kept is not None:
            return kept
        error = self._shell.last_exception
        return ErrorReport(name=type(error).__name__, message=str(error))

    def _sample(self, payload: dict[str, Any]) -> None:
        """Record a memory sample while a run is open; outside, nobody looks."""
        run, group = self._names.run, self._members.group
        if run:
            phase = "cell" if group is None else group.current_phase
            event = Event(
                kind="sample",
                rank=self.rank,
                run=run,
                cause=self._cell or "idle",
                payload={**payload, "phase": phase},
            )
            self._tap.record(event)

    def _show(self, shown: Shown) -> None:
        _flush()
        display = RankDisplay(rank=self.rank, cell=self._cell, **vars(shown))
        self._channel.send(display)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
