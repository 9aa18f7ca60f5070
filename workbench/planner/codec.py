"""Plans as JSON: any of this project's frozen dataclasses, there and back."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from workbench.errors import PlanError

T = TypeVar("T")


def to_json(value: Any) -> str:
    """Serialise a dataclass of plain values, tuples, mappings and dataclasses."""
    return json.dumps(dataclasses.asdict(value), default=dict)


def from_json(kind: type[T], text: str) -> T:
    """Read what `to_json` wrote, by the type hints of the dataclass.

    Raises:
        PlanError: The text is not JSON of this kind.
    """
    try:
        made: T = _decode(kind, json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"not a {kind.__name__} in JSON: {error}") from error
    return made


def _decode(kind: Any, raw: Any) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{key: _decode(hints[key], value) for key, value in raw.items()})
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _decode_tuple(args, raw)
    if origin is Mapping:
        return {key: _decode(args[1], value) for key, value in raw.items()}
    if origin in {typing.Union, types.UnionType}:
        return _decode_union(args, raw)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    return raw


def _decode_tuple(args: tuple[Any, ...], raw: list[Any]) -> tuple[Any, ...]:
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_decode(args[0], value) for value in raw)
    return tuple(_decode(kind, value) for kind, value in zip(args, raw, strict=True))


def _decode_union(args: tuple[Any, ...], raw: Any) -> Any:
    if raw is None or not any(dataclasses.is_dataclass(arg) for arg in args):
        return raw
    return _decode(next(a for a in args if dataclasses.is_dataclass(a)), raw)
