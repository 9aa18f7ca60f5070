"""Lines of many ranks, identical ones drawn together, half lines shown and replaced.

Pure: text goes in with the time, lines with their ranks come out. A line waits a
moment for the same line of the other ranks; then it is shown under those that have it.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from workbench.protocol.messages import Stream

#: How long a line waits for the other ranks to print the same.
GRACE_S = 0.02
#: A half line or progress bar is replaced at most this often.
PASSING_S = 0.1

Source = tuple[int, Stream]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line as shown.

    Args:
        ranks: Who printed it.
        stream: Where to.
        text: Without the line's end.
        passing: A half line or progress bar, replaced by what comes next.
    """

    ranks: tuple[int, ...]
    stream: Stream
    text: str
    passing: bool = False


@dataclass(kw_only=True)
class _Lane:
    """What one stream of one rank has printed and nobody has seen yet."""

    lines: deque[str] = field(default_factory=deque)
    counts: Counter[str] = field(default_factory=Counter)
    partial: str = ""
    since_s: float = 0.0

    def add(self, text: str, now_s: float) -> None:
        *whole, self.partial = (self.partial + text).split("\n")
        if whole and not self.lines:
            self.since_s = now_s
        for line in map(_last_overwrite, whole):
            self.lines.append(line)
            self.counts[line] += 1
        self.partial = _last_overwrite(self.partial, keep_end=True)

    def pop(self) -> str:
        line = self.lines.popleft()
        self.counts[line] -= 1
        return line


def _last_overwrite(line: str, *, keep_end: bool = False) -> str:
    """Return what a terminal would show of a line with carriage returns."""
    if "\r" not in line:
        return line
    parts = [part for part in line.split("\r") if part]
    last = parts[-1] if parts else ""
    return last + "\r" if keep_end and line.endswith("\r") else last


class Grouper:
    """Merges the output of the ranks of one cell.

    Args:
        ranks: Those that run the cell.
        grace_s: How long a line waits for the other ranks to print the same.
    """

    def __init__(self, ranks: tuple[int, ...], grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._ranks = ranks
        self._lanes: dict[Source, _Lane] = {}
        self._shown: dict[Stream, str] = {}
        self._shown_s: dict[Stream, float] = {}

    def add(self, rank: int, stream: Stream, text: str, now_s: float) -> None:
        """Take text of a rank."""
        lane = self._lanes.setdefault((rank, stream), _Lane())
        lane.add(text, now_s)

    def take(self, now_s: float, *, final: bool = False) -> list[Line]:
        """Return the lines that are to be shown now, in order.

        Args:
            now_s: Monotonic time.
            final: The cell has ended: half lines become lines.
        """
        shown: list[Line] = []
        for stream in ("stdout", "stderr"):
            lanes = {r: lane for (r, s), lane in self._lanes.items() if s == stream}
            if final:
                _complete(lanes)
            shown += self._whole_lines(stream, lanes, now_s, final=final)
            shown += self._passing(stream, lanes, now_s)
        return shown

    def wait_s(self, now_s: float) -> float | None:
        """Return when to ask again: None where nothing waits."""
        due = [s.since_s + self._grace_s for s in self._lanes.values() if s.lines]
        due += [
            self._shown_s.get(stream, 0.0) + PASSING_S
            for (_, stream), lane in self._lanes.items()
            if lane.partial.strip("\r") not in ("", self._shown.get(stream))
        ]
        return max(0.0, min(due) - now_s) if due else None

    def _whole_lines(
        self, stream: Stream, lanes: dict[int, _Lane], now_s: float, *, final: bool
    ) -> list[Line]:
        shown: list[Line] = []
        while True:
            heads = {
                r: lane.lines[0] for r, lane in sorted(lanes.items()) if lane.lines
            }
            if not heads:
                return shown
            text, ranks = _choose(heads, lanes)
            complete = len(ranks) == len(self._ranks)
            oldest_s = min(lanes[rank].since_s for rank in ranks)
            if not (complete or final or now_s - oldest_s >= self._grace_s):
                return shown
            for rank in ranks:
                lanes[rank].pop()
            shown.append(Line(ranks=ranks, stream=stream, text=text))

    def _passing(
        self, stream: Stream, lanes: dict[int, _Lane], now_s: float
    ) -> list[Line]:
        """Return the half line to show now: one, however many ranks draw a bar.

        It is the lowest rank's, under the ranks that show the same.
        """
        partials = {r: lane.partial.strip("\r") for r, lane in sorted(lanes.items())}
        lowest = next((text for text in partials.values() if text), "")
        if not lowest:
            self._shown[stream] = ""
            return []
        too_early = now_s - self._shown_s.get(stream, 0.0) < PASSING_S
        if lowest == self._shown.get(stream) or too_early:
            return []
        self._shown[stream], self._shown_s[stream] = lowest, now_s
        ranks = tuple(rank for rank, text in partials.items() if text == lowest)
        return [Line(ranks=ranks, stream=stream, text=lowest, passing=True)]


def _choose(
    heads: dict[int, str], lanes: dict[int, _Lane]
) -> tuple[str, tuple[int, ...]]:
    """Return the line to show next and its ranks.

    The line that most ranks have first; among equals one that no other rank will print
    later, so that common lines wait for each other.
    """
    votes = Counter(heads.values())

    def order(text: str) -> tuple[int, int]:
        later = sum(
            1 for r, lane in lanes.items() if lane.counts[text] and heads.get(r) != text
        )
        return (later, -votes[text])

    text = min(votes, key=order)
    return text, tuple(rank for rank, head in heads.items() if head == text)


def _complete(lanes: dict[int, _Lane]) -> None:
    for lane in lanes.values():
        if lane.partial.strip("\r"):
            lane.add("\n", 0.0)
