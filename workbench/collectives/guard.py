"""Compares what the ranks are about to run, before a backend sees it.

Ranks that disagree on operation, shape or dtype make gloo abort the process, or hang.
While the guard is on, each rank first shows the others a short text of what it is about
to issue; where the texts differ, every rank raises the same error, which names both
sides with their source lines, and no process dies.

It costs one small gather per collective, so it watches the first calls of each group in
a cell and then lets go: a loop that was right a hundred times is not slowed further.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from workbench.collectives.call import Call
from workbench.collectives.work import wait_in_slices
from workbench.errors import WorkbenchError

#: Calls of each group that are compared after each `watch`.
WATCHED_CALLS = 100
_TEXT_BYTES = 224
_SEPARATOR = "\x1f"

#: Here the ranks' tensors may differ in shape; all else must agree.
_ANY_SHAPE = frozenset(("all_to_all", "gather", "scatter", "barrier"))
#: Messages have two sides that differ by nature.
_MESSAGES = frozenset(("send", "recv"))


class MismatchError(WorkbenchError):
    """Ranks of one group are about to run different collectives."""


class Guard:
    """Compares calls across the ranks of their group.

    Args:
        find_line: Returns the source line of the person's code that a call comes from,
            given the frame of the call; "" where there is none.
    """

    def __init__(self, find_line: Callable[[Any], str]) -> None:
        self._find_line = find_line
        self._left: dict[str, int] = {}
        self.on = False

    def watch(self, *, on: bool = True) -> None:
        """Compare the next calls of every group; all ranks must say so together."""
        self.on = on
        self._left.clear()

    def check(self, call: Call, inner: Any) -> None:
        """Compare a call that is about to be issued on a real group.

        Raises:
            MismatchError: The ranks disagree; each of them raises it.
        """
        left = self._left.get(call.group, WATCHED_CALLS)
        if not self.on or left <= 0 or inner.size() < 2 or call.op in _MESSAGES:
            return
        self._left[call.group] = left - 1
        texts = _exchange(self._describe(call), inner)
        if len({text.partition(_SEPARATOR)[0] for text in texts}) > 1:
            raise MismatchError(
                f"the ranks' collectives do not match: {_sides(texts)}",
                hint="every rank of a group calls the same collectives in the same "
                "order, with equal shapes and dtypes",
            )

    def _describe(self, call: Call) -> str:
        shape = "" if call.op in _ANY_SHAPE else f" {call.shape}"
        what = f"{call.op}{shape} {call.dtype}"
        return f"{what}{_SEPARATOR}{self._find_line(sys._getframe(2))}"


def _exchange(text: str, inner: Any) -> list[str]:
    """Return the texts of all ranks of the group, in order of its ranks."""
    data = text.encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
    mine = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    all_texts = [torch.empty_like(mine) for _ in range(inner.size())]
    work = inner.allgather([all_texts], [mine])
    wait_in_slices(work)
    return [
        bytes(each.tolist()).rstrip(b"\0").decode(errors="replace")
        for each in all_texts
    ]


def _sides(texts: list[str]) -> str:
    """Return who calls what: "ranks 0, 2 call ... at line 3; rank 1 calls ..."."""
    sides: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        sides.setdefault(text, []).append(rank)
    return "; ".join(_side(ranks, text) for text, ranks in sides.items())


def _side(ranks: list[int], text: str) -> str:
    what, _, line = text.partition(_SEPARATOR)
    names = ", ".join(map(str, ranks))
    who = f"rank {names} calls" if len(ranks) == 1 else f"ranks {names} call"
    return f"{who} {what}" + (f" at {line}" if line else "")
