"""Lanes: one direction of moving bytes, in order, beside the computing.

A lane takes copies and gives a `Transfer` for each. On a GPU a lane is a copy stream; on
a CPU-only machine, and wherever one side is a file, it is a thread (torch's copies leave
Python's lock alone). A `Throttle` makes a lane as slow as a link that is not there.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch

from workbench.errors import OffloadError

#: (target, source) of one copy; both stay as they are until it is done.
Pair = tuple[torch.Tensor, torch.Tensor]

#: A thread's stack counts against the device budget; the default would take 8 MiB.
_STACK_BYTES = 512 * 1024


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """A link's speed, kept by sleeping where a copy was faster.

    Args:
        bytes_per_s: Of one direction.
        latency_s: Start-up of each transfer.
    """

    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if self.bytes_per_s <= 0 or self.latency_s < 0:
            raise OffloadError(
                f"a link of {self.bytes_per_s} bytes/s and {self.latency_s} s latency",
                hint="the rate must be above 0, the latency at least 0",
            )

    def seconds(self, num_bytes: int) -> float:
        """Return how long one transfer takes."""
        return self.latency_s + num_bytes / self.bytes_per_s


class Transfer(ABC):
    """A copy under way."""

    @abstractmethod
    def wait(self) -> None:
        """Let what the caller computes from here on see the data.

        On a GPU this holds back the current stream, not the caller.
        """

    @abstractmethod
    def finish(self) -> None:
        """Return once the data has arrived; raises what the copy raised."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the data has arrived."""


class Lane(ABC):
    """One direction of moving bytes; transfers run in the order in which they come."""

    @abstractmethod
    def copy(
        self,
        pairs: Iterable[Pair],
        *,
        after: Iterable[Transfer] = (),
        then: Callable[[], None] | None = None,
    ) -> Transfer:
        """Begin to copy pairs of tensors, as one transfer.

        Args:
            pairs: (target, source); the lane keeps them alive until they are copied.
            after: Transfers whose data this one reads, or whose target it overwrites.
            then: Called once the bytes have moved, on any thread.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish what is under way and end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ThreadTransfer(Transfer):
    """A copy that a thread makes."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def wait(self) -> None:
        """Return once the data has arrived: CPU code has no stream to hold back."""
        self._future.result()

    finish = wait

    def done(self) -> bool:
        """Whether the data has arrived."""
        return self._future.done()


class Worker:
    """One thread that runs tasks in order."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"workbench-{name}")
        before = threading.stack_size(_STACK_BYTES)
        try:
            self._pool.submit(_alone).result()
        finally:
            threading.stack_size(before)

    def run(
        self, task: Callable[[], None], *, after: Iterable[Transfer] = ()
    ) -> Transfer:
        """Begin a task once some transfers have arrived."""
        return ThreadTransfer(self._pool.submit(_run_after, list(after), task))

    def close(self) -> None:
        """Finish what is under way and end."""
        self._pool.shutdown()


def _alone() -> None:
    """Keep torch's helpers off the cores that compute."""
    torch.set_num_threads(1)


def _run_after(after: list[Transfer], task: Callable[[], None]) -> None:
    for transfer in after:
        transfer.finish()
    task()


class ThreadLane(Lane):
    """A lane whose copies one thread makes.

    Args:
        name: Of the thread.
        throttle: The link to behave like.
    """

    def __init__(self, name: str, *, throttle: Throttle | None = None) -> None:
        self._worker = Worker(name)
        self._throttle = throttle

    def copy(
        self,
        pairs: Iterable[Pair],
        *,
        after: Iterable[Transfer] = (),
        then: Callable[[], None] | None = None,
    ) -> Transfer:
        """Begin to copy pairs of tensors, as one transfer."""
        held = list(pairs)

        def task() -> None:
            self._move(held)
            if then is not None:
                then()
            held.clear()  # the executor keeps the last task until the next one comes

        return self._worker.run(task, after=after)

    def _move(self, pairs: list[Pair]) -> None:
        began_s = time.perf_counter()
        with torch.no_grad():
            for target, source in pairs:
                target.copy_(source)
        if self._throttle is not None:
            due_s = began_s + self._throttle.seconds(sum(t.nbytes for t, _ in pairs))
            time.sleep(max(0.0, due_s - time.perf_counter()))

    def close(self) -> None:
        """Finish what is under way and end."""
        self._worker.close()


class StreamTransfer(Transfer):
    """A copy that a GPU's copy engine makes."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        """Hold back the current stream until the data has arrived."""
        torch.cuda.current_stream().wait_event(self._event)

    def finish(self) -> None:
        """Return once the data has arrived."""
        self._event.synchronize()

    def done(self) -> bool:
        """Whether the data has arrived."""
        return bool(self._event.query())


class StreamLane(Lane):
    """A lane on a copy stream of a GPU; the CPU side must be pinned."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._then: deque[tuple[StreamTransfer, Callable[[], None]]] = deque()

    def copy(
        self,
        pairs: Iterable[Pair],
        *,
        after: Iterable[Transfer] = (),
        then: Callable[[], None] | None = None,
    ) -> Transfer:
        """Begin to copy pairs of tensors, as one transfer."""
        self._call_back(all_of_them=False)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        event = torch.cuda.Event()
        with torch.cuda.stream(self._stream), torch.no_grad():
            for earlier in after:
                earlier.wait()
            for pair in pairs:
                pair[0].copy_(pair[1], non_blocking=True)
                for side in pair:
                    if side.is_cuda:
                        # The allocator must not reuse it before the copy is through.
                        side.record_stream(self._stream)
            event.record(self._stream)
        transfer = StreamTransfer(event)
        if then is not None:
            self._then.append((transfer, then))
        return transfer

    def _call_back(self, *, all_of_them: bool) -> None:
        while self._then and (all_of_them or self._then[0][0].done()):
            transfer, then = self._then.popleft()
            transfer.finish()
            then()

    def close(self) -> None:
        """Finish what is under way and end."""
        self._stream.synchronize()
        self._call_back(all_of_them=True)


class StagedLane(ThreadLane):
    """A lane between a GPU and memory that is not pinned, such as a mapped file.

    A thread makes the copies on a stream of its own, where torch stages them through
    pinned memory.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        super().__init__(name)
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copy(
        self,
        pairs: Iterable[Pair],
        *,
        after: Iterable[Transfer] = (),
        then: Callable[[], None] | None = None,
    ) -> Transfer:
        """Begin to copy pairs of tensors, as one transfer."""
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(self._device))
        return super().copy(pairs, after=[*after, StreamTransfer(ready)], then=then)

    def _move(self, pairs: list[Pair]) -> None:
        with torch.cuda.stream(self._stream):
            super()._move(pairs)
            self._stream.synchronize()


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Both directions between the device and another tier."""

    inward: Lane
    outward: Lane

    def close(self) -> None:
        """Finish what is under way and end both."""
        self.inward.close()
        self.outward.close()


def lanes_between(
    device: torch.device, *, pinned: bool, throttle: Throttle | None = None
) -> Lanes:
    """Return lanes between a device and a tier.

    Args:
        device: Where the computing happens.
        pinned: Whether the tier's memory is page-locked.
        throttle: A link to behave like; on CPU-only machines.

    Raises:
        OffloadError: A throttle beside a GPU.
    """
    if device.type != "cuda":
        return Lanes(
            inward=ThreadLane("in", throttle=throttle),
            outward=ThreadLane("out", throttle=throttle),
        )
    if throttle is not None:
        raise OffloadError("a GPU's own link cannot be throttled")
    if pinned:
        return Lanes(inward=StreamLane(device), outward=StreamLane(device))
    return Lanes(inward=StagedLane("in", device), outward=StagedLane("out", device))
