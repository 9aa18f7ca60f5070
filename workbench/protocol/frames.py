"""Frames on a byte stream: a JSON header and binary buffers, each with its length.

Layout of one frame, integers in network order:

    u32 header bytes | u16 number of buffers | u64 bytes of each buffer | header | buffers
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import SessionError

_HEAD = struct.Struct("!IH")
_SIZE = struct.Struct("!Q")

#: A header holds names and numbers and now and then a figure; more is a broken peer.
MAX_HEADER_BYTES = 256 * 1024 * 1024
#: Beyond this a length is noise, not data.
MAX_BUFFER_BYTES = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One message as it travels.

    Args:
        header: JSON values only; `kind` names the message.
        buffers: Raw bytes that the header refers to by position.
    """

    header: dict[str, Any]
    buffers: tuple[bytes, ...] = ()


def pack(frame: Frame) -> bytes:
    """Return the bytes of a frame.

    >>> parser = FrameParser()
    >>> list(parser.feed(pack(Frame(header={"kind": "x"}, buffers=(b"ab",)))))
    [Frame(header={'kind': 'x'}, buffers=(b'ab',))]
    """
    header = json.dumps(frame.header, separators=(",", ":")).encode()
    sizes = [_SIZE.pack(len(buffer)) for buffer in frame.buffers]
    head = _HEAD.pack(len(header), len(frame.buffers))
    return b"".join([head, *sizes, header, *frame.buffers])


def unpack(data: bytes) -> Frame:
    """Return the one frame in `data`.

    Raises:
        SessionError: There is not exactly one.
    """
    frames = list(FrameParser().feed(data))
    if len(frames) != 1:
        raise SessionError(f"{len(data)} bytes hold {len(frames)} frames, not one")
    return frames[0]


class FrameParser:
    """Cuts a byte stream into frames; keeps what is not whole yet."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._needed_bytes = _HEAD.size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes.

        Raises:
            SessionError: The peer sends something else than frames.
        """
        self._pending += data
        while len(self._pending) >= self._needed_bytes:
            sizes = self._sizes()
            if sizes is None:
                continue
            yield self._take(sizes)
            self._needed_bytes = _HEAD.size

    def _sizes(self) -> list[int] | None:
        """Return header and buffer sizes, or None after asking for more bytes."""
        header_bytes, num_buffers = _HEAD.unpack_from(self._pending)
        table_end = _HEAD.size + num_buffers * _SIZE.size
        if len(self._pending) < table_end:
            self._needed_bytes = table_end
            return None
        offsets = range(_HEAD.size, table_end, _SIZE.size)
        sizes = [_SIZE.unpack_from(self._pending, at)[0] for at in offsets]
        if header_bytes > MAX_HEADER_BYTES or any(s > MAX_BUFFER_BYTES for s in sizes):
            raise SessionError(
                f"a frame claims a header of {header_bytes} bytes and buffers of {sizes}",
                hint="the peer does not speak this protocol",
            )
        total = table_end + header_bytes + sum(sizes)
        if len(self._pending) < total:
            self._needed_bytes = total
            return None
        return [header_bytes, *sizes]

    def _take(self, sizes: Sequence[int]) -> Frame:
        at = _HEAD.size + (len(sizes) - 1) * _SIZE.size
        parts = []
        with memoryview(self._pending) as view:
            for size in sizes:
                parts.append(bytes(view[at : at + size]))
                at += size
        del self._pending[:at]
        return Frame(header=json.loads(parts[0]), buffers=tuple(parts[1:]))
