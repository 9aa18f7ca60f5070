"""Messages to frames and back: dataclasses whose fields JSON can carry.

A field called `buffers` travels as raw bytes; every other field goes into the header.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from workbench.errors import SessionError
from workbench.protocol.frames import Frame

Message = TypeVar("Message")
Restore = Callable[[Any], Any]


def to_frame(message: Any) -> Frame:
    """Return the frame of a message, a dataclass instance."""
    header = {
        name: _plain(getattr(message, name))
        for name in _names(message.__class__)
        if name != "buffers"
    }
    header["kind"] = type(message).__name__
    return Frame(header=header, buffers=getattr(message, "buffers", ()))


def kinds(messages: Iterable[type]) -> Mapping[str, type]:
    """Return the messages that a peer may send, by the name that travels."""
    return types.MappingProxyType({message.__name__: message for message in messages})


def from_frame(frame: Frame, known: Mapping[str, type]) -> Any:
    """Return the message in a frame.

    Raises:
        SessionError: The kind is not one of `known`, or a field is missing.
    """
    header = dict(frame.header)
    kind = header.pop("kind", None)
    if kind not in known:
        raise SessionError(
            f"a message of kind {kind!r} arrived, known are {sorted(known)}",
            hint="notebook and session host run different versions; restart both",
        )
    fields = _restorers(known[kind])
    try:
        values = {name: fields[name](value) for name, value in header.items()}
        if "buffers" in fields:
            values["buffers"] = frame.buffers
        return known[kind](**values)
    except (KeyError, TypeError, ValueError) as error:
        raise SessionError(f"a {kind} message does not fit: {error}") from error


@functools.cache
def _names(message: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(message))


def _plain(value: Any) -> Any:
    """Return JSON values: dataclasses become objects, tuples and sets arrays."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, (tuple, list, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


@functools.cache
def _restorers(message: type) -> Mapping[str, Restore]:
    hints = typing.get_type_hints(message)
    return {name: _restorer(hints[name]) for name in _names(message)}


def _restorer(hint: Any) -> Restore:
    """Return the function that turns JSON values back into a field's type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return functools.partial(_restore_dataclass, hint)
    if origin is tuple:
        return functools.partial(_restore_tuple, _restorer(arguments[0]))
    if origin in (typing.Union, types.UnionType):
        inner = [item for item in arguments if item is not type(None)]
        if len(inner) == 1:
            return functools.partial(_restore_optional, _restorer(inner[0]))
    return _same


def _same(value: Any) -> Any:
    return value


def _restore_optional(inner: Restore, value: Any) -> Any:
    return None if value is None else inner(value)


def _restore_tuple(inner: Restore, value: Any) -> tuple[Any, ...]:
    return tuple(inner(item) for item in value)


def _restore_dataclass(kind: type, value: dict[str, Any]) -> Any:
    fields = _restorers(kind)
    return kind(**{name: fields[name](item) for name, item in value.items()})
