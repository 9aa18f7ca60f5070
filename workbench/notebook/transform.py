"""Turns `%%distributed` cells into awaiting code, before IPython sees a magic."""

from collections.abc import Callable

#: How awaiting code finds the magics of its notebook.
_MAGICS = "get_ipython().magics_manager.registry['DistributedMagics']"
_MARK = "%%distributed"


class Transformer:
    """An entry of `input_transformers_cleanup`.

    Args:
        default_on: Whether plain cells go to the ranks too, asked for each cell.
    """

    def __init__(self, default_on: Callable[[], bool]) -> None:
        self._default_on = default_on

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the cell's lines, rewritten where the ranks are to run them."""
        if not lines:
            return lines
        first = lines[0].rstrip("\n")
        if first == _MARK or first.startswith(_MARK + " "):
            return _awaiting(first.removeprefix(_MARK).strip(), lines[1:])
        if self._default_on() and not first.startswith(("%", "!")):
            return _awaiting("", lines)
        return lines


def _awaiting(arguments: str, body: list[str]) -> list[str]:
    code = "".join(body)
    return [f"await {_MAGICS}.run_cell({arguments!r}, {code!r})\n"]
