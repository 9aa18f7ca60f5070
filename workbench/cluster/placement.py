"""Which rank lives on which worker and device."""

from dataclasses import dataclass

from workbench.errors import ClusterError


@dataclass(frozen=True, kw_only=True)
class Room:
    """What one worker offers.

    Args:
        host: Its host name.
        cores: CPU cores that it may use.
        devices: CUDA devices by UUID.
    """

    host: str
    cores: int
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one rank lives.

    Args:
        room: Position of its worker.
        device: "cpu", or a CUDA device's UUID.
        threads: Compute threads.
    """

    room: int
    device: str
    threads: int


def place(
    num_ranks: int, rooms: tuple[Room, ...], *, backend: str, oversubscribe: bool
) -> tuple[Place, ...]:
    """Return a place for every rank, neighbours together.

    Raises:
        ClusterError: There are fewer devices (or cores) than ranks.
    """
    unit = "GPUs" if backend == "nccl" else "CPU cores"
    slots = [
        (number, device)
        for number, room in enumerate(rooms)
        for device in (room.devices if backend == "nccl" else ("cpu",) * room.cores)
    ]
    if not slots or (
        num_ranks > len(slots) and not (oversubscribe and backend != "nccl")
    ):
        raise ClusterError(
            f"{num_ranks} ranks were asked for, {_where(rooms)} {len(slots)} {unit}",
            hint=_hint(len(slots), backend),
        )
    rounds = -(-num_ranks // len(slots))
    spread = sorted((slots * rounds)[:num_ranks], key=lambda slot: slot[0])
    threads = max(1, len(slots) // num_ranks)
    return tuple(Place(room=n, device=d, threads=threads) for n, d in spread)


def default_ranks(rooms: tuple[Room, ...], *, backend: str) -> int:
    """Return how many ranks to start where nobody said: one per GPU, two on a CPU."""
    if backend == "nccl":
        return sum(len(room.devices) for room in rooms)
    return max(2, len(rooms))


def _where(rooms: tuple[Room, ...]) -> str:
    names = ", ".join(sorted({room.host for room in rooms})) or "no worker"
    return f"{names} has" if len(rooms) < 2 else f"{len(rooms)} workers ({names}) have"


def _hint(num_slots: int, backend: str) -> str:
    if num_slots == 0:
        return "start workers first, or use backend='gloo' to compute on CPUs"
    more = "" if backend == "nccl" else ", or pass oversubscribe=True to share cores"
    return f"ask for {num_slots} ranks{more}"
