"""The engine of a session: turns messages into events and obeys the instructions.

All decisions about the life of ranks and cells are `machine.handle`'s. What is here
translates: messages of ranks and notebooks to events, instructions to orders.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from workbench.cluster.placement import Place, Room
from workbench.errors import SessionError
from workbench.protocol import orders
from workbench.protocol.messages import (
    CellDone,
    Interrupt,
    Notice,
    RankInfo,
    RankOutcome,
    RunCell,
)
from workbench.runtime import life, machine
from workbench.runtime.cells import Cells, Record
from workbench.runtime.hub import Hub, Notebook
from workbench.runtime.link import Link
from workbench.runtime.output import Log
from workbench.runtime.questions import Questions
from workbench.runtime.stall import STALL_S, explain_stall, positions_in

#: How often time-outs and the ladder of a stop are looked at.
TICK_S = 0.05
_SIGINT, _SIGKILL = 2, 9


class Engine:
    """Drives one session whose ranks have been given places.

    Args:
        links: Comms to the supervisors, in the order of `rooms`.
        rooms: What the workers said of themselves.
        places: One per rank.
        group: How to form it; generation is filled in each time.
        environment: Extra variables for every rank.
        memory_bytes: Cap for every rank; 0 for none.
        hub: The notebooks.
        log: Where all output goes.
        ready: Called whenever the group stands.
        ended: Called once with the reason, and whether it is a failure.
        telemetry: Takes a rank's encoded events.
        rested: Called when a rank's cell has ended and its events were taken.
    """

    def __init__(
        self,
        *,
        links: tuple[Link, ...],
        rooms: tuple[Room, ...],
        places: tuple[Place, ...],
        group: orders.FormGroup,
        environment: dict[str, str],
        memory_bytes: int,
        hub: Hub,
        log: Log,
        ready: Callable[[], None],
        ended: Callable[[str, bool], None],
        telemetry: Callable[[bytes], None],
        rested: Callable[[], None],
    ) -> None:
        self._links = links
        self._rooms = rooms
        self._places = places
        self._group = group
        self._environment = environment
        self._memory_bytes = memory_bytes
        self._hub = hub
        self._ready = ready
        self._ended = ended
        self._telemetry = telemetry
        self._rested = rested
        self._state = machine.new(len(places))
        self._pids: dict[int, int] = {}
        self._questions = Questions(self._order)
        self._num_cells = 0
        self._explaining: asyncio.Future[None] | None = None
        self.stall_s = STALL_S
        self.layout_toml = group.layouts[0]
        self.plan_json = ""
        self._ticker: asyncio.TimerHandle | None = None
        self.cells = Cells(log)

    @property
    def num_ranks(self) -> int:
        """Ranks of the session."""
        return len(self._places)

    @property
    def phase(self) -> str:
        """The session's phase, see `life.SessionPhase`."""
        return self._state.phase

    @property
    def generation(self) -> int:
        """The group's generation."""
        return self._state.generation

    def begin(self) -> None:
        """Start the ranks and keep time."""
        self._handle(life.Begin(at_s=time.monotonic()))
        self._tick()

    def close(self, reason: str) -> None:
        """End the session."""
        self._handle(life.CloseAsked(reason=reason, at_s=time.monotonic()))
        if self._ticker is not None:
            self._ticker.cancel()

    def rank_infos(self) -> tuple[RankInfo, ...]:
        """Return what is known of each rank."""
        return tuple(
            RankInfo(
                rank=number,
                phase=rank.phase,
                pid=self._pids.get(number, 0),
                host=self._rooms[place.room].host,
                device=place.device,
            )
            for number, (rank, place) in enumerate(
                zip(self._state.ranks, self._places, strict=True)
            )
        )

    # --- from notebooks

    def run_cell(self, request: RunCell, owner: Notebook) -> None:
        """Queue a cell; refuse one for ranks that do not exist."""
        everywhere = tuple(range(self.num_ranks))
        ranks = request.ranks if request.ranks is not None else everywhere
        if not ranks or not set(ranks) <= set(everywhere):
            outcomes = tuple(RankOutcome(rank=r, status="refused") for r in ranks)
            stop = f"ranks {sorted(ranks)} were asked for, there are 0 to {self.num_ranks - 1}"
            owner.send(
                CellDone(cell=request.cell, outcomes=outcomes, seconds=0.0, stop=stop)
            )
            return
        self.cells.add(request, ranks, owner)
        asked = life.Request(
            cell=request.cell, ranks=ranks, timeout_s=request.timeout_s
        )
        self._handle(life.Requested(request=asked, at_s=time.monotonic()))

    def interrupt(self, order: Interrupt) -> None:
        """Stop a cell."""
        self._handle(
            life.InterruptAsked(
                cell=order.cell, reason=order.reason, at_s=time.monotonic()
            )
        )

    def restart(self, ranks: tuple[int, ...]) -> None:
        """Replace ranks' processes."""
        self._handle(life.RestartAsked(ranks=ranks, at_s=time.monotonic()))

    async def follow_run(self, run: str, plan_json: str, layout_toml: str) -> None:
        """Have every rank, and those that come later, know a run; "" ends it.

        Raises:
            SessionError: A rank could not, e.g. while a cell runs.
        """
        everywhere = tuple(range(self.num_ranks))
        arguments = {"run": run, "plan_json": plan_json}
        for answer in await self.ask(everywhere, "follow_run", arguments):
            if answer.error:
                raise SessionError(f"rank {answer.rank}: {answer.message}")
        self.layout_toml = layout_toml or self.layout_toml
        self.plan_json = plan_json or self.plan_json
        layouts = self._group.layouts
        if layout_toml and layout_toml not in layouts:
            layouts = (*layouts, layout_toml)
        self._group = replace(
            self._group, run=run, plan_json=plan_json, layouts=layouts
        )

    async def ask(
        self,
        ranks: tuple[int, ...],
        action: str,
        arguments: dict[str, Any],
        buffers: tuple[bytes, ...] = (),
    ) -> tuple[orders.RankAnswer, ...]:
        """Return ranks' answers to a question, in order of `ranks`.

        Raises:
            SessionError: A rank is lost before it answers.
        """
        return await self._questions.ask(ranks, action, arguments, buffers)

    # --- from ranks and supervisors

    def receive(self, link: Link, message: Any) -> None:
        """Take a message from a worker."""
        now_s = time.monotonic()
        match message:
            case orders.RankText():
                self.cells.text(message)
            case orders.Telemetry():
                for batch in message.buffers:
                    self._telemetry(batch)
            case orders.RankDisplay():
                self.cells.display(message)
            case orders.CellEnded():
                self._cell_ended(message, now_s)
            case orders.RankAnswer():
                self._questions.answered(message)
            case orders.RankStarted():
                self._pids[message.rank] = message.pid
                self._handle(
                    life.Started(
                        rank=message.rank, incarnation=message.incarnation, at_s=now_s
                    )
                )
            case orders.GroupFormed():
                self._handle(
                    life.Formed(
                        rank=message.rank,
                        generation=message.generation,
                        error=message.error,
                        at_s=now_s,
                    )
                )
            case orders.RankExited():
                self._rank_exited(message, now_s)
            case orders.SupervisorFailed():
                self._link_failed(link, message.reason)
            case orders.StoreStarted() | orders.SupervisorReady():
                pass  # the host has waited for these before it made this engine

    def link_lost(self, link: Link) -> None:
        """Take note that a worker is gone with all its ranks."""
        self._link_failed(link, "its worker is gone")

    def _link_failed(self, link: Link, reason: str) -> None:
        room = self._links.index(link)
        now_s = time.monotonic()
        for number, place in enumerate(self._places):
            if place.room == room and self._state.phase not in ("closing", "failed"):
                text = f"{reason} (ranks of worker {self._rooms[room].host})"
                self._fail(f"rank {number} is lost: {text}", now_s)
                return

    def _fail(self, reason: str, now_s: float) -> None:
        self._handle(life.CloseAsked(reason=reason, at_s=now_s))

    def _cell_ended(self, message: orders.CellEnded, now_s: float) -> None:
        self._rested()
        self.cells.ended(message)
        issued = ",".join(f"{g}:{n}" for g, n in sorted(message.issued.items()))
        self._handle(
            life.Finished(
                rank=message.rank,
                cell=message.cell,
                status=message.status,
                clean=message.clean,
                issued=issued,
                at_s=now_s,
            )
        )

    def _rank_exited(self, message: orders.RankExited, now_s: float) -> None:
        self._questions.lost(message.rank, message.cause)
        self._pids.pop(message.rank, None)
        self.cells.lost(message.rank, message.cause)
        text = (
            f"rank {message.rank} ended ({message.cause}) and is started again, empty"
        )
        if self.cells.current is not None:
            self.cells.note(text)
        elif self._state.phase not in ("closing", "failed"):
            self._hub.broadcast(Notice(text=text))
        self._handle(
            life.Exited(
                rank=message.rank,
                incarnation=message.incarnation,
                cause=message.cause,
                at_s=now_s,
            )
        )

    # --- obeying

    def _handle(self, event: life.Event) -> None:
        self._state, instructions = machine.handle(self._state, event)
        for instruction in instructions:
            self._obey(instruction)

    def _tick(self) -> None:
        self._handle(life.Tick(at_s=time.monotonic()))
        record = self.cells.current
        quiet_s = time.monotonic() - record.news_s if record is not None else 0.0
        if record is not None and quiet_s >= self.stall_s and not record.explained:
            record.explained = True
            self._explaining = asyncio.ensure_future(self._explain(record, quiet_s))
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def _explain(self, record: Record, quiet_s: float) -> None:
        """Ask a silent cell's ranks where they are, and show who waits for whom."""
        answers = await self.ask(record.ranks, "where", {})
        text = explain_stall(positions_in(answers), quiet_s)
        if text and record is self.cells.current:
            self.cells.explain(record, text)

    def _obey(self, instruction: life.Instruction) -> None:
        match instruction:
            case life.Start():
                self._start_rank(instruction)
            case life.Form():
                self._form(instruction)
            case life.Run():
                self._run(instruction)
            case life.Free():
                self._each(
                    instruction.ranks,
                    orders.PeersLeft(
                        cell=instruction.cell,
                        failed=instruction.failed,
                        finished=instruction.finished,
                    ),
                )
            case life.Halt():
                self._halt(instruction)
            case life.SignalRanks():
                self._signal(instruction.ranks, _SIGINT)
            case life.KillRanks():
                self.cells.note(
                    f"ranks {list(instruction.ranks)} were killed: {instruction.cause}"
                )
                self._signal(instruction.ranks, _SIGKILL)
            case life.EndCell():
                refused = all(status == "refused" for _, status in instruction.outcomes)
                stop = instruction.cause if refused else ""
                self.cells.finish(instruction.cell, instruction.outcomes, stop)
            case life.SayReady():
                self._ready()
            case life.StopAll():
                self._ended(instruction.cause, instruction.failed)

    def _start_rank(self, instruction: life.Start) -> None:
        place = self._places[instruction.rank]
        on_gpu = place.device != "cpu"
        environment = dict(self._environment)
        if on_gpu:
            environment["CUDA_VISIBLE_DEVICES"] = place.device
        self._links[place.room].to_supervisor(
            orders.StartRank(
                rank=instruction.rank,
                incarnation=instruction.incarnation,
                environment=environment,
                memory_bytes=self._memory_bytes,
                threads=place.threads,
                device="cuda" if on_gpu else "cpu",
            )
        )

    def _form(self, instruction: life.Form) -> None:
        order = replace(self._group, generation=instruction.generation)
        self._each(tuple(range(self.num_ranks)), order)

    def _run(self, instruction: life.Run) -> None:
        record = self.cells.start(instruction.request.cell)
        request = record.request
        self._num_cells += 1
        self._each(
            record.ranks,
            orders.Execute(
                cell=request.cell,
                code=request.code,
                number=request.number or self._num_cells,
                silent=request.silent,
                guarded=len(record.ranks) == self.num_ranks,
            ),
        )

    def _halt(self, instruction: life.Halt) -> None:
        if self.cells.current is not None:
            self.cells.current.stop = instruction.cause
        order = orders.StopCell(cell=instruction.cell, status=instruction.status)
        self._each(instruction.ranks, order)

    def _signal(self, ranks: tuple[int, ...], number: int) -> None:
        for rank in ranks:
            link = self._links[self._places[rank].room]
            link.to_supervisor(orders.SignalRank(rank=rank, signal=number))

    def _each(self, ranks: tuple[int, ...], message: Any) -> None:
        for rank in ranks:
            self._order(rank, message)

    def _order(self, rank: int, message: Any) -> None:
        self._links[self._places[rank].room].to_rank(rank, message)
