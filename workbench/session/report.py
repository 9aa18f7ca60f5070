"""The report of a cell that failed: the guilty rank first, then where the others were."""

from workbench.errors import RankError
from workbench.protocol.messages import CellDone, ErrorReport, RankOutcome, Waiting
from workbench.protocol.spans import label
from workbench.units import seconds_text


class CellError(RankError):
    """A failed cell; a notebook shows it without our own frames.

    Args:
        message: The report as plain text.
        lines: The report with the ranks' colours.
        ranks: The ranks that raised or were lost.
    """

    def __init__(
        self, message: str, *, lines: list[str], ranks: tuple[int, ...]
    ) -> None:
        super().__init__(message, ranks=ranks)
        self.lines = lines

    def _render_traceback_(self) -> list[str]:
        return self.lines


def error_of(done: CellDone) -> CellError:
    """Return the error that reports a failed cell."""
    guilty = tuple(o for o in done.outcomes if o.status in ("error", "lost"))
    if not guilty and not done.stop:
        # Freed ranks without a failed one: the connection itself broke.
        guilty = tuple(o for o in done.outcomes if o.status == "freed")
    others = [o for o in done.outcomes if o not in guilty]
    lines = _headline(done, guilty)
    for group in _alike(guilty):
        lines += [] if group[0].status == "freed" else _guilty(group)
    lines += [_where(outcome) for outcome in guilty if outcome.status == "freed"]
    lines += [_where(outcome) for outcome in others if outcome.status != "refused"]
    lines += [f"note: {note}" for note in done.notes]
    return CellError(
        "\n".join(map(_plain, lines)), lines=lines, ranks=tuple(o.rank for o in guilty)
    )


def _headline(done: CellDone, guilty: tuple[RankOutcome, ...]) -> list[str]:
    if done.stop:
        ranks = label(outcome.rank for outcome in done.outcomes)
        refused = all(outcome.status == "refused" for outcome in done.outcomes)
        what = "was refused" if refused else "was stopped"
        return [f"RankError: the cell on {ranks} {what}: {done.stop}"]
    if guilty and all(outcome.status == "freed" for outcome in guilty):
        return [_never_joined(done, guilty)]
    names = sorted({_what(outcome) for outcome in guilty})
    return [f"RankError: {label(o.rank for o in guilty)}: {'; '.join(names)}"]


def _never_joined(done: CellDone, guilty: tuple[RankOutcome, ...]) -> str:
    """Return the headline of a cell in which some waited and the others had finished."""
    finished = [outcome.rank for outcome in done.outcomes if outcome.status == "ok"]
    ops = sorted({call.op for outcome in guilty for call in outcome.waiting})
    waited = label(outcome.rank for outcome in guilty)
    what = " and ".join(ops) or "a collective"
    if not finished:
        return f"RankError: {waited}: the connections of the group broke in {what}"
    return (
        f"RankError: {waited} waited in {what}, which {label(finished)} never called: "
        "the ranks' collectives do not match"
    )


def _what(outcome: RankOutcome) -> str:
    if outcome.status == "lost":
        return f"process ended ({outcome.cause})"
    error = outcome.error
    return "failed" if error is None else _summary(error)


def _summary(error: ErrorReport) -> str:
    first = error.message.partition("\n")[0]
    return f"{error.name}: {first}" if first else error.name


def _alike(guilty: tuple[RankOutcome, ...]) -> list[tuple[RankOutcome, ...]]:
    """Return the failed ranks, those with the same error and traceback together."""
    groups: dict[tuple[str, str, str], list[RankOutcome]] = {}
    for outcome in guilty:
        error = outcome.error
        key = ("lost", outcome.cause, "")
        if error is not None:
            key = (error.name, error.message, "\n".join(error.lines))
        groups.setdefault(key, []).append(outcome)
    return [tuple(group) for group in groups.values()]


def _guilty(group: tuple[RankOutcome, ...]) -> list[str]:
    name = label(outcome.rank for outcome in group)
    error = group[0].error
    if error is None:
        return [f"{name}: {_what(group[0])}; its names are gone"]
    return [f"{name}:", *error.lines]


def _where(outcome: RankOutcome) -> str:
    """Return one line: what an innocent rank was doing when the cell ended."""
    name = label((outcome.rank,))
    if outcome.status == "ok":
        return f"{name}: had finished after {seconds_text(outcome.seconds)}"
    at = (
        f", at {outcome.error.source}" if outcome.error and outcome.error.source else ""
    )
    if outcome.waiting:
        calls = "; ".join(map(_call, outcome.waiting))
        return f"{name}: was waiting in {calls}{at}; let go, its names are intact"
    return f"{name}: was running{at}; stopped, its names are intact"


def _call(call: Waiting) -> str:
    return (
        f"{call.op} of {call.group}, call {call.sequence}, {call.shape}, "
        f"for {seconds_text(call.since_s)}"
    )


def _plain(line: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", line)
