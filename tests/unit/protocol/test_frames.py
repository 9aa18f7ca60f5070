"""Frames survive any cutting of the stream, and refuse what is not a frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SessionError
from workbench.protocol.frames import Frame, FrameParser, pack, unpack

frames = st.builds(
    Frame,
    header=st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8)),
    buffers=st.lists(st.binary(max_size=40), max_size=3).map(tuple),
)


@given(st.lists(frames, max_size=4), st.lists(st.integers(1, 30), min_size=1))
def test_any_cut_of_the_stream_gives_the_same_frames(sent, sizes):
    stream = b"".join(map(pack, sent))
    parser = FrameParser()

    received = []
    at = 0
    while at < len(stream):
        size = sizes[at % len(sizes)]
        received += parser.feed(stream[at : at + size])
        at += size

    assert received == sent


def test_a_stranger_s_bytes_are_refused():
    with pytest.raises(SessionError, match="does not speak this protocol"):
        list(FrameParser().feed(b"GET / HTTP/1.1\r\nHost: localhost\r\n" * 20000))


def test_unpack_refuses_two_frames():
    one = pack(Frame(header={}))

    with pytest.raises(SessionError, match="hold 2 frames"):
        unpack(one + one)
