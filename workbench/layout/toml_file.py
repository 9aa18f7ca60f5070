"""Layouts as TOML: the same object drives planner, runtime and widget."""

import difflib
import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from workbench.errors import LayoutError
from workbench.layout.layout import Axis, Layout, field_names


def write_toml(layout: Layout) -> str:
    """Return a `[layout]` table with what differs from the defaults.

    >>> print(write_toml(Layout(dp=2)))
    [layout]
    dp = 2
    """
    lines = ["[layout]"]
    for field in fields(Layout):
        value = getattr(layout, field.name)
        if value != field.default:
            lines.append(f"{field.name} = {_toml_value(value)}")
    return "\n".join(lines)


def read_toml(text: str) -> Layout:
    """Read a layout from TOML text: the keys at top level or in a `[layout]` table.

    Raises:
        LayoutError: Not TOML, an unknown key (named with the nearest valid one), a
            value of the wrong sort, or a layout that contradicts itself.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LayoutError(f"not TOML: {error}", hint="e.g. [layout]\ndp = 2") from error
    table = raw.get("layout", raw)
    if not isinstance(table, dict):
        raise LayoutError(
            "'layout' is not a table", hint="write [layout] above the keys"
        )
    for key in table:
        _check_key(key)
    return Layout(**{key: _value(key, value) for key, value in table.items()})


def load_layout(path: str | Path) -> Layout:
    """Read a layout from a TOML file.

    Raises:
        LayoutError: No such file, or what `read_toml` raises, with the path.
    """
    path = Path(path)
    if not path.is_file():
        raise LayoutError(
            f"no layout file at {path}", hint="Layout(dp=2).to_toml() gives its text"
        )
    try:
        return read_toml(path.read_text())
    except LayoutError as error:
        raise LayoutError(f"{path}: {error.message}", hint=error.hint) from error


def _check_key(key: str) -> None:
    names = field_names()
    if key in names:
        return
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    raise LayoutError(
        f"a layout has no {key!r}",
        hint=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names)}",
    )


def _value(key: str, value: Any) -> Any:
    if key not in {"order", "offload"}:
        return value
    if not isinstance(value, list):
        raise LayoutError(f"{key} is {value!r}", hint=f'write {key} = ["..."]')
    if key == "offload":
        return tuple(value)
    unknown = [name for name in value if name not in set(Axis)]
    if unknown:
        raise LayoutError(
            f"order names {unknown[0]!r}, which is no axis",
            hint=f"axes are {', '.join(Axis)}",
        )
    return tuple(Axis(name) for name in value)


def _toml_value(value: object) -> str:
    """Write a whole number, a bool, a string, or a tuple of strings as TOML."""
    plain = [str(v) for v in value] if isinstance(value, tuple) else value
    return json.dumps(plain)
