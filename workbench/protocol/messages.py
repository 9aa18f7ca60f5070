"""What a notebook and its session host say to each other.

The leg is a Unix socket in a directory of mode 0700: whoever can open it is the same
user, who may run code anyway. No credentials travel on it except the security
material of a Dask cluster that the person handed over.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.protocol.codec import kinds

Stream = Literal["stdout", "stderr"]
CellStatus = Literal["ok", "error", "interrupted", "freed", "lost", "refused"]

# --- shared parts


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """An exception on a rank, as text.

    Args:
        name: The exception's class.
        message: Its text, one line or more.
        lines: The traceback as the rank's shell formatted it, with colours.
        source: The cell's line that was running, e.g. "line 3: x = f(x)"; "" if none.
    """

    name: str
    message: str
    lines: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A collective that a rank was inside.

    Args:
        op: E.g. "all_reduce".
        group: The group's name, with its axis where known.
        sequence: How many collectives this group had run before.
        shape: Of the tensor, e.g. "(4, 8) float32".
        since_s: Seconds since it began.
    """

    op: str
    group: str
    sequence: int
    shape: str
    since_s: float


@dataclass(frozen=True, kw_only=True)
class RankOutcome:
    """How a cell ended on one rank.

    Args:
        rank: The rank.
        status: "freed" means let go because another rank had failed.
        seconds: From the start of the cell to its end on this rank.
        error: What was raised, if anything was.
        waiting: The collective it sat in when it was freed or interrupted.
        bundle: The last expression by MIME type; empty where there was none.
        value: Positions of the last expression's bytes in `CellDone.buffers`; empty
            where it cannot travel.
        cause: For a lost rank: signal, exit code or memory cap, in words.
    """

    rank: int
    status: CellStatus
    seconds: float = 0.0
    error: ErrorReport | None = None
    waiting: tuple[Waiting, ...] = ()
    bundle: dict[str, Any] = field(default_factory=dict)
    value: tuple[int, ...] = ()
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class RankInfo:
    """One rank as `status` shows it.

    Args:
        rank: The rank.
        phase: See `workbench.runtime.machine.RankPhase`.
        pid: Process id on its host; 0 while it has none.
        host: Host name of its worker.
        device: "cpu", or the CUDA device's UUID.
    """

    rank: int
    phase: str
    pid: int
    host: str
    device: str


# --- notebook to host


@dataclass(frozen=True, kw_only=True)
class Open:
    """Bring a session up.

    Args:
        num_ranks: Ranks to start; 0 for one per device or two on a CPU host.
        backend: "gloo" or "nccl".
        address: A running scheduler; "" to start one here.
        security: Paths or PEM texts for `distributed.Security`; empty for none.
        environment: Extra variables for every rank.
        memory_bytes: Cap of each rank's data memory; 0 for none.
        interface: Network interface of store and group; "" for loopback.
        oversubscribe: Allow more ranks than devices or cores.
        lease_s: How long the session outlives its last notebook; 0: not at all.
        pointer: File to leave for those who attach later.
        log: File that receives all output of all ranks.
    """

    num_ranks: int
    backend: str
    pointer: str
    log: str
    address: str = ""
    security: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    interface: str = ""
    oversubscribe: bool = False
    lease_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RunCell:
    """Run code on ranks.

    Args:
        cell: A name that the notebook chose; comes back with all output.
        code: Source of the cell, IPython syntax.
        ranks: Where; None for everywhere.
        timeout_s: Interrupt the cell after this long; None for never.
        number: The notebook's own cell number, for tracebacks; 0: the host counts.
        silent: No output and no displayed result, for internal questions.
    """

    cell: str
    code: str
    ranks: tuple[int, ...] | None = None
    timeout_s: float | None = None
    number: int = 0
    silent: bool = False


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    """Stop a cell.

    Args:
        cell: Its name; "" for whichever runs.
        reason: For the report.
    """

    cell: str = ""
    reason: str = "interrupted by the notebook"


@dataclass(frozen=True, kw_only=True)
class Follow:
    """Send what a cell has printed so far, and then the rest as it comes."""

    cell: str


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request with one answer.

    Args:
        request: Number that comes back in the answer.
        action: See `workbench.runtime.requests`.
        arguments: By name, JSON values.
        buffers: Bytes that the arguments refer to.
    """

    request: int
    action: str
    arguments: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Close:
    """End the session, its ranks and everything that it started."""


# --- host to notebook


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step on the way up, for the person who waits."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The group stands and is checked.

    Args:
        session: The session's id.
        num_ranks: Ranks of the group.
        backend: Of the group.
        device: "cpu" or "cuda".
        address: The scheduler's.
        feed: Socket of the read-only feed.
        token: What the feed asks for.
        seconds: From the first line of the host to now.
    """

    session: str
    num_ranks: int
    backend: str
    device: str
    address: str
    feed: str
    token: str = field(repr=False)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CellText:
    """Text that a rank printed."""

    cell: str
    rank: int
    stream: Stream
    text: str


@dataclass(frozen=True, kw_only=True)
class CellDisplay:
    """A figure, a table, HTML: something that a rank displayed.

    Args:
        cell: Where it belongs.
        rank: Who displayed it.
        data: By MIME type; base64 text for images.
        metadata: By MIME type.
        display: The display id; "" for none.
        update: Replace what was shown under that id.
    """

    cell: str
    rank: int
    data: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    display: str = ""
    update: bool = False


@dataclass(frozen=True, kw_only=True)
class CellNote:
    """Something that the host has to say about a running cell."""

    cell: str
    text: str


@dataclass(frozen=True, kw_only=True)
class CellDone:
    """A cell has ended on all its ranks.

    Args:
        cell: Its name.
        outcomes: One per rank.
        seconds: Wall time in the host.
        stop: Why it was stopped; "" where it ran to its end.
        notes: What the person should know: respawned ranks, cut output.
        buffers: Bytes of the values.
    """

    cell: str
    outcomes: tuple[RankOutcome, ...]
    seconds: float
    stop: str = ""
    notes: tuple[str, ...] = ()
    buffers: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to an `Ask`.

    Args:
        request: Number of the question.
        error: Name of the error's class; "" where it went well.
        message: The error's text.
        hint: The error's way out.
        result: By name, JSON values.
        buffers: Bytes that the result refers to.
    """

    request: int
    error: str = ""
    message: str = ""
    hint: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something happened between cells: a rank was lost, a group re-formed."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Closed:
    """The session has ended, or could not begin.

    Args:
        reason: In words.
        error: Name of the error's class; "" for an ordinary end.
        hint: A way out.
    """

    reason: str
    error: str = ""
    hint: str = ""


TO_HOST = kinds((Open, RunCell, Interrupt, Follow, Ask, Close))
TO_NOTEBOOK = kinds(
    (
        Stage,
        Ready,
        CellText,
        CellDisplay,
        CellNote,
        CellDone,
        Answer,
        Notice,
        Closed,
    )
)
