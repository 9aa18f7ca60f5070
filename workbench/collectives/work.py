"""The handle of one observed call: interruptible waits, and news when it is done."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from workbench.collectives.call import Call

#: Long enough to cost nothing, short enough that Ctrl-C feels instant.
_SLICE = timedelta(milliseconds=50)
_EXPIRED = "Operation timed out"


def wait_in_slices(work: dist.Work) -> bool:
    """Block until a gloo collective is done; signals are handled between slices."""
    while True:
        try:
            return bool(work.wait(_SLICE))
        except RuntimeError as error:
            # A cut or lost peer reads otherwise; a late one reads like this. A call
            # that ended just now tells how at the next wait.
            if _EXPIRED not in str(error):
                raise


class ObservedWork(dist.Work):
    """Wraps the backend's Work of one call.

    A wait without a timeout is cut into slices, between which Python handles signals:
    every blocking collective of torch's own code becomes interruptible. gloo keeps a
    collective valid after an expired wait; it closes the pair after an expired send or
    receive, and NCCL's wait does not block the host, so those wait in one piece.
    """

    def __init__(
        self,
        inner: dist.Work,
        call: Call,
        *,
        sliced: bool,
        done: Callable[["ObservedWork"], None],
    ) -> None:
        super().__init__()
        self.inner = inner
        self.call = call
        self._sliced = sliced
        self._done: Callable[[ObservedWork], None] | None = done

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Block until the call is done; raises what the backend raises."""
        began_s = time.monotonic()
        try:
            if timeout > timedelta(0):
                return bool(self.inner.wait(timeout))
            return (
                wait_in_slices(self.inner) if self._sliced else bool(self.inner.wait())
            )
        finally:
            self.call.waited_s += time.monotonic() - began_s
            self._settle()

    def _settle(self) -> None:
        """Tell the group once that nobody waits for this call any more."""
        done, self._done = self._done, None
        if done is not None:
            done(self)

    def __del__(self) -> None:
        self._settle()

    def is_completed(self) -> bool:
        """Whether the call is done, in success or not."""
        return bool(self.inner.is_completed())

    def is_success(self) -> bool:
        """Whether the call is done without an error."""
        return bool(self.inner.is_success())

    def exception(self) -> Any:
        """Return the backend's error, if there was one."""
        return self.inner.exception()

    def result(self) -> Any:
        """Return the output tensors."""
        return self.inner.result()

    def source_rank(self) -> int:
        """Return who sent what a receive from any source took."""
        return int(self.inner._source_rank())

    def _source_rank(self) -> int:
        return int(self.inner._source_rank())

    def synchronize(self) -> None:
        """Let the current stream wait for the call."""
        self.inner.synchronize()

    def block_current_stream(self) -> None:
        """Let the current stream wait for the call."""
        self.inner.block_current_stream()

    def get_future(self) -> Any:
        """Return a future of the output tensors."""
        return self.inner.get_future()

    def get_future_result(self) -> Any:
        """Return a future of how the call ended."""
        inner: Any = self.inner
        return inner.get_future_result()
