"""Tab inside `%%distributed` cells: flags on the first line, rank 0's names below."""

from typing import Any

from IPython.core.completer import SimpleCompletion, context_matcher

from workbench.errors import SessionError
from workbench.notebook.arguments import CELL_FLAGS
from workbench.session.registry import OPEN_SESSIONS


def matcher() -> Any:
    """Return a matcher for `shell.Completer.custom_matchers`."""

    @context_matcher()
    def distributed_matcher(context: Any) -> dict[str, Any]:
        return _complete(context)

    return distributed_matcher


def _complete(context: Any) -> dict[str, Any]:
    lines = context.full_text.split("\n")
    if not lines[0].startswith("%%distributed"):
        return _offer([], alone=False)
    if context.cursor_line == 0:
        flags = [flag for flag in CELL_FLAGS if flag.startswith(context.token or "--")]
        return _offer(flags, alone=True)
    return _offer(_from_rank_0(lines, context), alone=False)


def _from_rank_0(lines: list[str], context: Any) -> list[str]:
    line = lines[context.cursor_line]
    try:
        _, matches = OPEN_SESSIONS.newest().complete(line, context.cursor_position)
    except SessionError:
        return []
    return matches


def _offer(texts: list[str], *, alone: bool) -> dict[str, Any]:
    return {
        "completions": [SimpleCompletion(text=text, type="") for text in texts],
        "suppress": alone and bool(texts),
    }
