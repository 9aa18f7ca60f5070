"""The life of a session and its cells, as a pure function.

`handle(state, event)` returns the next state and the instructions that follow from it;
the engine obeys and knows nothing else. Every instruction carries its cause. Times are
seconds of the host's monotonic clock and come in with the events.

A stopped cell climbs a ladder: the rank is asked (with a cut of the group's sockets
where it sits in a collective), signalled from outside, and at last killed and started
again, which is said.
"""

from dataclasses import replace

from workbench.runtime.life import (
    FORM_TIMEOUT_S,
    KILL_AFTER_S,
    MAX_FORM_FAILURES,
    MAX_START_FAILURES,
    SIGNAL_AFTER_S,
    TELL_AFTER_S,
    Begin,
    Cell,
    CloseAsked,
    EndCell,
    Event,
    Exited,
    Finished,
    Form,
    Formed,
    Free,
    Halt,
    Instruction,
    InterruptAsked,
    KillRanks,
    Rank,
    RankPhase,
    Request,
    Requested,
    RestartAsked,
    Run,
    SayReady,
    SessionPhase,
    SignalRanks,
    Start,
    Started,
    State,
    Status,
    Stop,
    StopAll,
    Tick,
)

Result = tuple[State, tuple[Instruction, ...]]


def new(num_ranks: int) -> State:
    """Return the state of a session that has not begun."""
    return State(ranks=(Rank(),) * num_ranks, tally={"starting": num_ranks})


def handle(state: State, event: Event) -> Result:
    """Return the state after an event, and what to do about it."""
    if state.phase in ("closing", "failed"):
        return _after_the_end(state, event)
    match event:
        case Begin():
            numbers = range(len(state.ranks))
            return state, tuple(
                Start(rank=n, incarnation=0, cause="session asked for") for n in numbers
            )
        case Started():
            return _started(state, event)
        case Formed():
            return _formed(state, event)
        case Requested():
            return _next_cell(
                replace(state, queue=(*state.queue, event.request)), event.at_s
            )
        case Finished():
            return _finished(state, event)
        case Exited():
            return _exited(state, event)
        case InterruptAsked():
            return _interrupted(state, event)
        case RestartAsked():
            return _restart(state, event)
        case Tick():
            return _tick(state, event.at_s)
        case CloseAsked():
            return _close(state, event.reason, failed=False)


def _after_the_end(state: State, event: Event) -> Result:
    """Refuse cells; everything else comes too late to matter."""
    if isinstance(event, Requested):
        return state, (_refusal(event.request, f"session is {state.phase}"),)
    return state, ()


def _refusal(request: Request, cause: str) -> EndCell:
    outcomes: tuple[tuple[int, Status], ...] = tuple(
        (r, "refused") for r in request.ranks
    )
    return EndCell(cell=request.cell, outcomes=outcomes, cause=cause)


def _with_rank(state: State, number: int, rank: Rank) -> State:
    before = state.ranks[number].phase
    ranks = (*state.ranks[:number], rank, *state.ranks[number + 1 :])
    tally = dict(state.tally)
    tally[before] -= 1
    tally[rank.phase] = tally.get(rank.phase, 0) + 1
    return replace(state, ranks=ranks, tally=tally)


def _in_phase(state: State, phase: RankPhase) -> tuple[int, ...]:
    if not state.tally.get(phase, 0):
        return ()
    return tuple(n for n, rank in enumerate(state.ranks) if rank.phase == phase)


# --- starting and forming


def _started(state: State, event: Started) -> Result:
    rank = state.ranks[event.rank]
    if rank.phase != "starting" or rank.incarnation != event.incarnation:
        return state, ()
    state = _with_rank(state, event.rank, replace(rank, phase="idle"))
    return _form_if_possible(state, event.at_s, f"rank {event.rank} started")


def _form_if_possible(state: State, at_s: float, cause: str) -> Result:
    """Form the next generation once no cell runs and every rank has a process."""
    missing = state.tally.get("starting", 0) + state.tally.get("lost", 0)
    if state.cell is not None or missing:
        return state, ()
    ranks = tuple(replace(rank, phase="forming") for rank in state.ranks)
    state = replace(
        state,
        ranks=ranks,
        tally={"forming": len(ranks)},
        phase="forming",
        generation=state.generation + 1,
        formed_since_s=at_s,
    )
    return state, (Form(generation=state.generation, cause=cause),)


def _formed(state: State, event: Formed) -> Result:
    rank = state.ranks[event.rank]
    if event.generation != state.generation or rank.phase != "forming":
        return state, ()
    if event.error:
        return _form_failed(state, event)
    rank = replace(rank, phase="ready", start_failures=0)
    state = _with_rank(state, event.rank, rank)
    if state.tally["ready"] < len(state.ranks):
        return state, ()
    state = replace(state, phase="ready", form_failures=0)
    ready = SayReady(generation=state.generation, cause="every rank joined")
    state, instructions = _next_cell(state, event.at_s)
    return state, (ready, *instructions)


def _form_failed(state: State, event: Formed) -> Result:
    """Try the next generation, in which the ranks that are late join too."""
    state = replace(state, form_failures=state.form_failures + 1)
    reason = (
        f"rank {event.rank} could not join generation {event.generation}: {event.error}"
    )
    if state.form_failures >= MAX_FORM_FAILURES:
        return _close(state, reason, failed=True)
    return _form_if_possible(state, event.at_s, reason)


# --- cells


def _next_cell(state: State, at_s: float) -> Result:
    """Start the oldest waiting cell if the group stands and nothing runs."""
    if state.phase != "ready" or state.cell is not None or not state.queue:
        return state, ()
    request, *rest = state.queue
    cell = Cell(request=request, started_s=at_s, waiting=frozenset(request.ranks))
    state = replace(state, phase="running", cell=cell, queue=tuple(rest))
    ranks = tuple(
        replace(rank, phase="running") if n in cell.waiting else rank
        for n, rank in enumerate(state.ranks)
    )
    num_running = len(cell.waiting)
    tally: dict[RankPhase, int] = {
        "running": num_running,
        "ready": len(ranks) - num_running,
    }
    state = replace(state, ranks=ranks, tally=tally)
    return state, (Run(request=request, cause=f"cell {request.cell} is next"),)


def _finished(state: State, event: Finished) -> Result:
    cell = state.cell
    if (
        cell is None
        or event.cell != cell.request.cell
        or event.rank not in cell.waiting
    ):
        return state, ()
    cell = replace(
        cell, clean=cell.clean and event.clean, issued=cell.issued | {event.issued}
    )
    rank = replace(state.ranks[event.rank], phase="ready")
    state = _with_rank(replace(state, cell=cell), event.rank, rank)
    return _left_cell(state, event.rank, event.status, event.at_s)


def _left_cell(state: State, number: int, status: Status, at_s: float) -> Result:
    """Take a rank out of the cell; free the others if it failed, end it if last."""
    cell = state.cell
    assert cell is not None
    cell = replace(
        cell,
        waiting=cell.waiting - {number},
        outcomes=(*cell.outcomes, (number, status)),
        left_s=at_s,
    )
    state = replace(state, cell=cell)
    if not cell.waiting:
        return _end_cell(state, at_s, f"rank {number} was the last: {status}")
    if status == "ok":
        return state, ()
    return _tell(state, cell, f"rank {number} left the cell: {status}", {number})


def _tell(state: State, cell: Cell, cause: str, also: set[int]) -> Result:
    """Tell the ranks still in the cell who has left it; `also` failed beside it."""
    failed = {n for n, how in cell.outcomes if how in ("error", "lost")} | also
    finished = {n for n, how in cell.outcomes if how == "ok"}
    state = replace(state, cell=replace(cell, told=len(cell.outcomes)))
    return state, (
        Free(
            cell=cell.request.cell,
            ranks=tuple(sorted(cell.waiting)),
            failed=tuple(sorted(failed)),
            finished=tuple(sorted(finished)),
            cause=cause,
        ),
    )


def _end_cell(state: State, at_s: float, cause: str) -> Result:
    """Report the cell; form the group again where ranks are lost or out of step."""
    cell = state.cell
    assert cell is not None
    end = EndCell(
        cell=cell.request.cell, outcomes=tuple(sorted(cell.outcomes)), cause=cause
    )
    state = replace(state, cell=None, phase="ready")
    failed = any(status != "ok" for _, status in cell.outcomes)
    out_of_step = failed and (not cell.clean or len(cell.issued) > 1)
    lost = _in_phase(state, "lost")
    if lost:
        state, instructions = _respawn(state, lost, cause)
        return state, (end, *instructions)
    if out_of_step or not cell.clean:
        state, instructions = _form_if_possible(state, at_s, f"after cell: {cause}")
        return state, (end, *instructions)
    state, instructions = _next_cell(state, at_s)
    return state, (end, *instructions)


def _respawn(state: State, numbers: tuple[int, ...], cause: str) -> Result:
    """Start new processes for lost ranks; the group forms when they are up."""
    instructions = []
    for number in numbers:
        rank = state.ranks[number]
        rank = replace(rank, phase="starting", incarnation=rank.incarnation + 1)
        state = _with_rank(state, number, rank)
        instructions.append(
            Start(rank=number, incarnation=rank.incarnation, cause=cause)
        )
    return replace(state, phase="starting"), tuple(instructions)


# --- losing ranks


def _exited(state: State, event: Exited) -> Result:
    rank = state.ranks[event.rank]
    if rank.incarnation != event.incarnation or rank.phase == "lost":
        return state, ()
    failures = rank.start_failures + 1
    was_running = rank.phase == "running"
    lost = replace(rank, phase="lost", start_failures=failures)
    state = _with_rank(state, event.rank, lost)
    cause = f"rank {event.rank} ended: {event.cause}"
    if failures > MAX_START_FAILURES:
        return _close(state, cause, failed=True)
    if state.cell is None:
        return _respawn(state, _in_phase(state, "lost"), cause)
    if was_running:
        return _left_cell(state, event.rank, "lost", event.at_s)
    # It was not part of the cell, but the others may be waiting for it.
    return _tell(state, state.cell, cause, {event.rank})


def _restart(state: State, event: RestartAsked) -> Result:
    """Kill the processes; their exits bring the new ones."""
    cause = "restart asked for"
    alive = tuple(
        n for n in event.ranks if state.ranks[n].phase not in ("lost", "starting")
    )
    return state, ((KillRanks(ranks=alive, cause=cause),) if alive else ())


# --- stopping


def _interrupted(state: State, event: InterruptAsked) -> Result:
    """Stop the running cell, or take a waiting one out of the queue."""
    waiting = [request for request in state.queue if request.cell == event.cell]
    if waiting:
        queue = tuple(r for r in state.queue if r.cell != event.cell)
        refusals = tuple(_refusal(request, event.reason) for request in waiting)
        return replace(state, queue=queue), refusals
    cell = state.cell
    if cell is None or event.cell not in ("", cell.request.cell):
        return state, ()
    return _stop(state, event.reason, event.at_s)


def _stop(state: State, cause: str, at_s: float) -> Result:
    cell = state.cell
    assert cell is not None
    if cell.stop is not None:
        return state, ()
    stop = Stop(cause=cause, status="interrupted", since_s=at_s)
    state = replace(state, cell=replace(cell, stop=stop))
    return state, (
        Halt(
            cell=cell.request.cell,
            ranks=tuple(sorted(cell.waiting)),
            status="interrupted",
            cause=cause,
        ),
    )


def _tick(state: State, at_s: float) -> Result:
    """Let time-outs and the ladder of a stop take their next step."""
    if state.phase == "forming" and at_s - state.formed_since_s > FORM_TIMEOUT_S:
        late = _in_phase(state, "forming")
        state = replace(state, formed_since_s=at_s)
        cause = f"no answer in {FORM_TIMEOUT_S:.0f} s while forming"
        return state, (KillRanks(ranks=late, cause=cause),)
    cell = state.cell
    if cell is None:
        return state, ()
    if cell.stop is None:
        return _watch(state, cell, at_s)
    return _climb(state, cell, cell.stop, at_s)


def _watch(state: State, cell: Cell, at_s: float) -> Result:
    """Stop a cell at its time-out; tell its ranks of others that have finished it."""
    timeout_s = cell.request.timeout_s
    if timeout_s is not None and at_s - cell.started_s >= timeout_s:
        cause = f"ran longer than its time-out of {timeout_s:g} s"
        return _stop(state, cause, at_s)
    if len(cell.outcomes) > cell.told and at_s - cell.left_s >= TELL_AFTER_S:
        return _tell(state, cell, "others have run the cell to its end", set())
    return state, ()


def _climb(state: State, cell: Cell, stop: Stop, at_s: float) -> Result:
    """Signal, then kill the ranks that a stop has not reached."""
    waited_s = at_s - stop.since_s
    ranks = tuple(sorted(cell.waiting))
    if stop.rung == 1 and waited_s >= SIGNAL_AFTER_S:
        cause = f"no answer {SIGNAL_AFTER_S:.0f} s after: {stop.cause}"
        step: Instruction = SignalRanks(ranks=ranks, cause=cause)
    elif stop.rung == 2 and waited_s >= KILL_AFTER_S:
        cause = f"no answer {KILL_AFTER_S:.0f} s after: {stop.cause}"
        step = KillRanks(ranks=ranks, cause=cause)
    else:
        return state, ()
    stop = replace(stop, rung=stop.rung + 1)
    return replace(state, cell=replace(cell, stop=stop)), (step,)


def _close(state: State, reason: str, *, failed: bool) -> Result:
    """End everything: the running cell, the waiting ones, the processes."""
    instructions: list[Instruction] = []
    if state.cell is not None:
        cell = state.cell
        lost: tuple[tuple[int, Status], ...] = tuple((n, "lost") for n in cell.waiting)
        outcomes = tuple(sorted((*cell.outcomes, *lost)))
        instructions.append(
            EndCell(cell=cell.request.cell, outcomes=outcomes, cause=reason)
        )
    instructions += [_refusal(request, reason) for request in state.queue]
    instructions.append(StopAll(cause=reason, failed=failed))
    phase: SessionPhase = "failed" if failed else "closing"
    return replace(state, phase=phase, cell=None, queue=()), tuple(instructions)
