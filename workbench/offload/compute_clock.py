"""Tells computing from waiting between saved-tensor hooks."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from workbench.planner.offload.swap import SavedTensor


class ComputeClock:
    """Sums the time between hooks: what computing takes from one saved tensor on."""

    def __init__(self) -> None:
        self._since_s = time.perf_counter()
        self._compute_s = 0.0
        self._forward_s: list[float] = []
        self._backward_s: dict[int, float] = {}
        self._user: int | None = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time that a hook takes."""
        self._compute_s += time.perf_counter() - self._since_s
        try:
            yield
        finally:
            self._since_s = time.perf_counter()

    def saved(self) -> None:
        """Note that the next tensor is saved."""
        self._forward_s.append(self._take())

    def used(self, index: int) -> None:
        """Note that the backward uses a tensor; what ran until now used the one before."""
        elapsed_s = self._take()
        if self._user is not None:
            self._backward_s[self._user] = elapsed_s
        self._user = index

    def _take(self) -> float:
        elapsed_s, self._compute_s = self._compute_s, 0.0
        return elapsed_s

    def profile(self, sizes: Sequence[SavedTensor]) -> tuple[SavedTensor, ...]:
        """Return the tensors with their times."""
        return tuple(
            SavedTensor(
                num_bytes=size.num_bytes,
                forward_s=self._forward_s[index],
                backward_s=self._backward_s.get(index, 0.0),
            )
            for index, size in enumerate(sizes)
        )
