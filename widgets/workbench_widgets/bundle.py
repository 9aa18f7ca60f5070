"""Joins a widget's ES modules into the one module that anywidget loads.

There is no build step: the files are plain ES modules that `node --test` imports as
they are. Joined, their imports of each other and their `export` words fall away; only
`export default` stays.
"""

import re
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

_IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\.[^"]*";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_HERE = files("workbench_widgets")


def script(*names: str, uplot: bool = False) -> str:
    """Return the files as one module, in this order, behind uPlot where it is wanted.

    Args:
        names: Paths below this package, those that are imported first.
        uplot: Whether to put the drawing library in front.
    """
    parts = [_read(name) for name in names]
    joined = "\n".join(_EXPORT.sub("", _IMPORT.sub("", part)) for part in parts)
    return f"{_uplot('uPlot.iife.js')}\n{joined}" if uplot else joined


def style(*names: str, uplot: bool = False) -> str:
    """Return style sheets as one, behind uPlot's where it is wanted."""
    parts = [_uplot("uPlot.min.css")] if uplot else []
    return "\n".join([*parts, *map(_read, names)])


def _read(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")


@cache
def _uplot(name: str) -> str:
    # Found, not imported: the package loads NumPy for its own plots.
    spec = find_spec("uplot")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "static" / name).read_text(encoding="utf-8")
