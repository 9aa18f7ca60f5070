"""What becomes of text that ranks print: all of it to a file, some to the notebook."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from workbench.protocol.messages import Stream

#: Per cell and rank the notebook gets this much as it comes ...
HEAD_BYTES = 200_000
#: ... and of what is beyond, the last lines when the cell ends.
TAIL_LINES = 20


class Log:
    """The file of everything that ranks print, one source per line."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self._file: IO[str] = path.open("a", encoding="utf-8")
        path.chmod(0o600)
        self._partial: dict[tuple[int, Stream], str] = {}

    def write(self, cell: str, rank: int, stream: Stream, text: str) -> None:
        """Write the whole lines in `text`; keep the rest for the next call."""
        text = self._partial.pop((rank, stream), "") + text
        whole, newline, rest = text.rpartition("\n")
        if rest:
            self._partial[rank, stream] = rest
        if newline:
            mark = f"{cell} rank {rank} {stream} | "
            self._file.write(mark + whole.replace("\n", "\n" + mark) + "\n")

    def flush(self) -> None:
        """Put what was written into the file, half lines too."""
        for (rank, stream), rest in self._partial.items():
            self._file.write(f"rank {rank} {stream} | {rest}\n")
        self._partial.clear()
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()


@dataclass(kw_only=True)
class Gate:
    """Lets the head of one rank's output through and keeps the tail."""

    head_bytes: int = HEAD_BYTES
    passed_bytes: int = 0
    withheld_lines: int = 0
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    def admit(self, text: str) -> str:
        """Return the part of `text` that goes on now."""
        room = self.head_bytes - self.passed_bytes
        if len(text) <= room and not self.withheld_lines:
            self.passed_bytes += len(text)
            return text
        head, rest = text[: max(room, 0)], text[max(room, 0) :]
        # Cut at a line's end, so that the announcement stands alone.
        if head and not self.withheld_lines:
            head, _, split = head.rpartition("\n")
            head, rest = (head + "\n" if head else ""), split + rest
        else:
            head, rest = "", text
        self.passed_bytes = self.head_bytes
        lines = rest.split("\n")
        self.withheld_lines += len(lines) - 1
        self.tail.extend(line for line in lines if line)
        return head

    def close(self, log: Path) -> str:
        """Return the announcement and the last lines, or "" where nothing is missing."""
        if not self.withheld_lines:
            return ""
        left_out = self.withheld_lines - min(len(self.tail), self.withheld_lines)
        head = f"... {left_out:,} lines left out here; all of them are in {log}\n"
        return head + "".join(f"{line}\n" for line in self.tail)
