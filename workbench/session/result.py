"""What comes back from a cell."""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workbench.errors import SessionError
from workbench.protocol.messages import CellDone, RankOutcome
from workbench.protocol.spans import label
from workbench.session.values import from_bytes
from workbench.units import seconds_text


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """What one rank gave back.

    Args:
        outcome: How the cell ended there.
        parts: The bytes of its last expression; empty where it had none, or where it
            cannot travel.
    """

    outcome: RankOutcome
    parts: tuple[bytes, ...]

    @property
    def rank(self) -> int:
        """The rank."""
        return self.outcome.rank

    @property
    def value(self) -> Any:
        """The last expression; None where there was none.

        Raises:
            SessionError: There was one, and it cannot travel to this notebook.
        """
        if self.parts:
            return from_bytes(self.parts)
        if self.outcome.bundle:
            raise SessionError(
                f"the value on rank {self.rank} is too large to come by itself, or "
                "cannot be pickled",
                hint='fetch a name with session.get("name"), or look at its text',
            )
        return None

    @property
    def text(self) -> str:
        """The last expression as text, "" where there was none."""
        return str(self.outcome.bundle.get("text/plain", ""))


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What all ranks of a cell gave back; shows itself in a notebook.

    Args:
        done: The host's report.
    """

    done: CellDone

    @property
    def ok(self) -> bool:
        """Whether every rank ran the cell to its end."""
        return all(outcome.status == "ok" for outcome in self.done.outcomes)

    @property
    def seconds(self) -> float:
        """Wall time of the cell."""
        return self.done.seconds

    @property
    def ranks(self) -> tuple[RankResult, ...]:
        """One result per rank."""
        return tuple(
            RankResult(
                outcome=outcome,
                parts=tuple(self.done.buffers[position] for position in outcome.value),
            )
            for outcome in self.done.outcomes
        )

    @property
    def values(self) -> list[Any]:
        """The last expression of each rank, in order of ranks."""
        return [result.value for result in self.ranks]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, rank: int) -> Any:
        for result in self.ranks:
            if result.rank == rank:
                return result.value
        raise SessionError(
            f"rank {rank} did not run this cell",
            hint=f"it ran on {label(result.rank for result in self.ranks)}",
        )

    def groups(self) -> list[tuple[tuple[int, ...], str]]:
        """Return the texts of the last expressions, equal ones together."""
        found: dict[str, list[int]] = {}
        for result in self.ranks:
            if result.text:
                found.setdefault(result.text, []).append(result.rank)
        return [(tuple(ranks), text) for text, ranks in found.items()]

    def __repr__(self) -> str:
        lines = [_labelled(label(ranks), text) for ranks, text in self.groups()]
        if lines:
            return "\n".join(lines)
        count = len(self.done.outcomes)
        return f"<CellResult: {count} ranks in {seconds_text(self.seconds)}>"

    def _repr_html_(self) -> str | None:
        """Return a table of the last expressions, or None where plain text will do."""
        rich = {
            result.rank: result.outcome.bundle["text/html"]
            for result in self.ranks
            if "text/html" in result.outcome.bundle
        }
        if not rich:
            return None
        rows = "".join(
            f"<tr><th>{html.escape(label((rank,)))}</th><td>{text}</td></tr>"
            for rank, text in rich.items()
        )
        return f"<table>{rows}</table>"


def _labelled(name: str, text: str) -> str:
    return f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}"
