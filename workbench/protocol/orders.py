"""What a session host, its supervisors and their ranks say to each other.

Host and supervisor share one Dask comm, so these messages travel under the cluster's
own TLS. A supervisor passes messages for a rank on without reading them.
"""

from dataclasses import dataclass, field
from typing import Any

from workbench.protocol.codec import kinds
from workbench.protocol.messages import CellStatus, ErrorReport, Stream, Waiting

#: Addressee of messages that are for the supervisor itself.
SUPERVISOR = -1

# --- host to supervisor


@dataclass(frozen=True, kw_only=True)
class StartRank:
    """Fork one rank.

    Args:
        rank: Its number.
        incarnation: How many processes have been this rank before.
        environment: Variables for this rank alone.
        memory_bytes: Cap of its data memory (RLIMIT_DATA above what it starts with);
            0 for none.
        threads: Compute threads; 0 leaves torch's own choice.
        device: "cpu", or "cuda:<index>".
    """

    rank: int
    incarnation: int
    environment: dict[str, str]
    memory_bytes: int = 0
    threads: int = 1
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class StartStore:
    """Start the rendezvous store, listening on one address."""

    host: str


@dataclass(frozen=True, kw_only=True)
class SignalRank:
    """Send a signal to one rank's process, by its id."""

    rank: int
    signal: int


# --- supervisor to host


@dataclass(frozen=True, kw_only=True)
class SupervisorReady:
    """The zygote is there.

    Args:
        host: Host name.
        cores: Ranks on CPUs that fit here: cores, or a Dask worker's threads.
        devices: CUDA devices by UUID, found without opening any.
    """

    host: str
    cores: int
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoreStarted:
    """The rendezvous store listens."""

    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class RankText:
    """Text from a rank's pipes, in order with its other messages."""

    rank: int
    stream: Stream
    text: str


@dataclass(frozen=True, kw_only=True)
class RankExited:
    """A rank's process has ended.

    Args:
        rank: Its number.
        incarnation: Which of its processes.
        code: Exit code; negative for a signal, as `subprocess` has it.
        cause: In words.
    """

    rank: int
    incarnation: int
    code: int
    cause: str


@dataclass(frozen=True, kw_only=True)
class SupervisorFailed:
    """The zygote ended, or a fork failed: no ranks on this worker any more."""

    reason: str


# --- host to rank


@dataclass(frozen=True, kw_only=True)
class FormGroup:
    """Join the group of a generation, leaving any earlier one.

    Args:
        generation: Counts up; messages of older generations are dropped.
        world_size: Ranks of the group.
        store_host: Where the rendezvous store listens.
        store_port: Its port.
        backend: "gloo" or "nccl".
        interface: Interface name; "" for loopback.
        layouts: Layouts (TOML) whose meshes the session has, in the order in which
            they were made; a fresh rank makes the same groups in the same order.
        run: The current run, "" outside any.
        plan_json: Its plan; "" without.
    """

    generation: int
    world_size: int
    store_host: str
    store_port: int
    backend: str
    interface: str = ""
    layouts: tuple[str, ...] = ()
    run: str = ""
    plan_json: str = ""


@dataclass(frozen=True, kw_only=True)
class Execute:
    """Run a cell; fields as in `messages.RunCell`.

    `guarded`: every rank runs it, so their collectives can be compared.
    """

    cell: str
    code: str
    number: int
    silent: bool = False
    guarded: bool = False


@dataclass(frozen=True, kw_only=True)
class StopCell:
    """Interrupt a cell.

    Args:
        cell: Which; a late order for an older cell is dropped.
        status: How the rank shall call its end.
        cut: Also cut the group's sockets, for waits that a signal does not reach.
    """

    cell: str
    status: CellStatus
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class PeersLeft:
    """Other ranks have left the cell: they will join no collective of it any more.

    Args:
        cell: Which cell.
        failed: Those that raised or were lost.
        finished: Those that ran it to its end.
    """

    cell: str
    failed: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AskRank:
    """A question to one rank.

    Args:
        request: Number that comes back.
        action: "put", "get", "follow_run", "complete", "inspect", "where".
        arguments: By name.
        buffers: Bytes that the arguments refer to.
    """

    request: int
    action: str
    arguments: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


# --- rank to host


@dataclass(frozen=True, kw_only=True)
class RankStarted:
    """A rank's shell is there."""

    rank: int
    incarnation: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class GroupFormed:
    """A rank has joined a generation, or could not.

    Args:
        rank: The rank.
        generation: Which.
        error: Why not; "" where it did, and a checked sum came out right.
        seconds: How long it took.
    """

    rank: int
    generation: int
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RankDisplay:
    """Something displayed; fields as in `messages.CellDisplay`."""

    rank: int
    cell: str
    data: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    display: str = ""
    update: bool = False


@dataclass(frozen=True, kw_only=True)
class CellEnded:
    """A cell has ended on one rank.

    Args:
        rank: The rank.
        cell: Which cell.
        status: How.
        seconds: How long.
        clean: No collective was left open or cut.
        issued: Collectives this rank has issued in this generation, by group.
        error: What was raised.
        waiting: Collectives open when it was stopped.
        bundle: The last expression by MIME type.
        buffers: The last expression's bytes; empty where it cannot travel.
    """

    rank: int
    cell: str
    status: CellStatus
    seconds: float
    clean: bool = True
    issued: dict[str, int] = field(default_factory=dict)
    error: ErrorReport | None = None
    waiting: tuple[Waiting, ...] = ()
    bundle: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """Events of one rank, encoded by `workbench.telemetry.encode`."""

    rank: int
    buffers: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankAnswer:
    """The answer to an `AskRank`; `error` is "" where it went well."""

    rank: int
    request: int
    error: str = ""
    message: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


TO_SUPERVISOR = kinds((StartRank, StartStore, SignalRank))
TO_RANK = kinds((FormGroup, Execute, StopCell, PeersLeft, AskRank))
FROM_RANKS = kinds(
    (
        SupervisorReady,
        StoreStarted,
        RankText,
        RankExited,
        SupervisorFailed,
        RankStarted,
        GroupFormed,
        RankDisplay,
        CellEnded,
        Telemetry,
        RankAnswer,
    )
)
