"""The words of a session's life: states, events, instructions.

`workbench.runtime.machine` says how one follows from another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

RankPhase = Literal["starting", "idle", "forming", "ready", "running", "lost"]
SessionPhase = Literal["starting", "forming", "ready", "running", "closing", "failed"]
Status = Literal["ok", "error", "interrupted", "freed", "lost", "refused"]

#: A rank that a stop does not reach is signalled from outside after this long ...
SIGNAL_AFTER_S = 2.0
#: ... and killed after this long.
KILL_AFTER_S = 5.0
#: Ranks are told of those that ran the cell to its end when nobody left it for so long.
TELL_AFTER_S = 0.5
#: A rank that does not join a forming group is killed after this long.
FORM_TIMEOUT_S = 20.0
#: A group that cannot be formed this many times in a row ends the session.
MAX_FORM_FAILURES = 3
#: A rank that is lost this many times in a row before it is ready ends the session.
MAX_START_FAILURES = 3

# --- state


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One rank as the host knows it."""

    phase: RankPhase = "starting"
    incarnation: int = 0
    start_failures: int = 0


@dataclass(frozen=True, kw_only=True)
class Request:
    """A cell that someone wants to run."""

    cell: str
    ranks: tuple[int, ...]
    timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Why and how far a running cell is being stopped."""

    cause: str
    status: Status
    since_s: float
    rung: int = 1


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The running cell.

    `left_s` is when the last rank left it, `told` how many had left when the others
    were last told.
    """

    request: Request
    started_s: float
    waiting: frozenset[int]
    outcomes: tuple[tuple[int, Status], ...] = ()
    issued: frozenset[str] = frozenset()
    clean: bool = True
    stop: Stop | None = None
    left_s: float = 0.0
    told: int = 0


@dataclass(frozen=True, kw_only=True)
class State:
    """The whole session.

    `tally` counts the ranks by phase, so that 4096 of them can be asked at once.
    """

    ranks: tuple[Rank, ...]
    tally: Mapping[RankPhase, int]
    phase: SessionPhase = "starting"
    generation: int = 0
    formed_since_s: float = 0.0
    form_failures: int = 0
    cell: Cell | None = None
    queue: tuple[Request, ...] = ()


# --- events


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The session was asked for."""

    at_s: float


@dataclass(frozen=True, kw_only=True)
class Started:
    """A rank's process is up."""

    rank: int
    incarnation: int
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Formed:
    """A rank joined a generation, or says why it could not."""

    rank: int
    generation: int
    error: str
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Requested:
    """Someone wants to run a cell."""

    request: Request
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A cell ended on one rank.

    `issued` names how many collectives the rank has issued: ranks that differ after a
    failed cell are out of step, so the group is formed again.
    """

    rank: int
    cell: str
    status: Status
    clean: bool
    issued: str
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Exited:
    """A rank's process ended."""

    rank: int
    incarnation: int
    cause: str
    at_s: float


@dataclass(frozen=True, kw_only=True)
class InterruptAsked:
    """Someone pressed stop; "" means whichever cell runs."""

    cell: str
    reason: str
    at_s: float


@dataclass(frozen=True, kw_only=True)
class RestartAsked:
    """Someone wants fresh processes for these ranks."""

    ranks: tuple[int, ...]
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Time went by."""

    at_s: float


@dataclass(frozen=True, kw_only=True)
class CloseAsked:
    """The session shall end."""

    reason: str
    at_s: float


Event = (
    Begin
    | Started
    | Formed
    | Requested
    | Finished
    | Exited
    | InterruptAsked
    | RestartAsked
    | Tick
    | CloseAsked
)

# --- instructions


@dataclass(frozen=True, kw_only=True)
class Start:
    """Fork a process for a rank."""

    rank: int
    incarnation: int
    cause: str


@dataclass(frozen=True, kw_only=True)
class Form:
    """Send every rank into a new generation of the group."""

    generation: int
    cause: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """Send a cell to its ranks."""

    request: Request
    cause: str


@dataclass(frozen=True, kw_only=True)
class Free:
    """Tell ranks that others have left the cell: failed in it, or run it to its end."""

    cell: str
    ranks: tuple[int, ...]
    failed: tuple[int, ...]
    finished: tuple[int, ...]
    cause: str


@dataclass(frozen=True, kw_only=True)
class Halt:
    """Ask ranks to stop the cell; with `cut`, to leave collectives too."""

    cell: str
    ranks: tuple[int, ...]
    status: Status
    cause: str


@dataclass(frozen=True, kw_only=True)
class SignalRanks:
    """Signal ranks from outside."""

    ranks: tuple[int, ...]
    cause: str


@dataclass(frozen=True, kw_only=True)
class KillRanks:
    """Kill ranks' processes."""

    ranks: tuple[int, ...]
    cause: str


@dataclass(frozen=True, kw_only=True)
class EndCell:
    """Report a cell as over."""

    cell: str
    outcomes: tuple[tuple[int, Status], ...]
    cause: str


@dataclass(frozen=True, kw_only=True)
class SayReady:
    """Tell notebooks that the group stands."""

    generation: int
    cause: str


@dataclass(frozen=True, kw_only=True)
class StopAll:
    """End every process of the session."""

    cause: str
    failed: bool


Instruction = (
    Start
    | Form
    | Run
    | Free
    | Halt
    | SignalRanks
    | KillRanks
    | EndCell
    | SayReady
    | StopAll
)
