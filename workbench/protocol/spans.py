"""Sets of ranks as people write them: "0,2-3"."""

from collections.abc import Iterable

from workbench.errors import SessionError


def spans_text(ranks: Iterable[int]) -> str:
    """Return ranks as text, neighbours drawn together.

    >>> spans_text((0, 1, 2, 5))
    '0-2,5'
    """
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs)


def label(ranks: Iterable[int]) -> str:
    """Return "rank 3" or "ranks 0-1".

    >>> label((0, 1))
    'ranks 0-1'
    """
    text = spans_text(ranks)
    return f"rank {text}" if text.isdigit() else f"ranks {text}"


def parse_spans(text: str) -> tuple[int, ...]:
    """Return the ranks in a text such as "0,2-3".

    Raises:
        SessionError: The text is something else.

    >>> parse_spans("0,2-3")
    (0, 2, 3)
    """
    ranks: set[int] = set()
    try:
        for part in text.replace(" ", "").split(","):
            first, dash, last = part.partition("-")
            ranks.update(range(int(first), int(last if dash else first) + 1))
    except ValueError as error:
        raise SessionError(
            f"{text!r} names no ranks", hint='write ranks like "0,2-3"'
        ) from error
    return tuple(sorted(ranks))
