"""Messages come back as they were sent."""

import pytest

from workbench.errors import SessionError
from workbench.protocol.codec import from_frame, to_frame
from workbench.protocol.frames import Frame, pack, unpack
from workbench.protocol.messages import (
    TO_HOST,
    TO_NOTEBOOK,
    CellDone,
    ErrorReport,
    RankOutcome,
    Ready,
    RunCell,
    Waiting,
)


def through_the_wire(message, known):
    return from_frame(unpack(pack(to_frame(message))), known)


def test_nested_dataclasses_and_buffers_come_back():
    waiting = Waiting(
        op="all_reduce", group="world", sequence=3, shape="(2,)", since_s=0.5
    )
    error = ErrorReport(name="ValueError", message="bad", lines=("a", "b"))
    outcome = RankOutcome(
        rank=1, status="error", error=error, waiting=(waiting,), value=(0,)
    )
    done = CellDone(cell="c", outcomes=(outcome,), seconds=1.5, buffers=(b"\x00\xff",))

    assert through_the_wire(done, TO_NOTEBOOK) == done


def test_none_and_tuples_keep_apart():
    cell = RunCell(cell="c", code="1", ranks=(0, 2))
    everywhere = RunCell(cell="c", code="1")

    assert through_the_wire(cell, TO_HOST) == cell
    assert through_the_wire(everywhere, TO_HOST) == everywhere


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(SessionError, match="'Explode'"):
        from_frame(Frame(header={"kind": "Explode"}), TO_HOST)


def test_a_missing_field_is_refused_by_kind():
    with pytest.raises(SessionError, match="RunCell"):
        from_frame(Frame(header={"kind": "RunCell", "cell": "c"}), TO_HOST)


def test_a_token_is_not_in_a_repr():
    ready = Ready(
        session="s",
        num_ranks=2,
        backend="gloo",
        device="cpu",
        address="tls://x",
        feed="/f",
        token="secret",
    )

    assert "secret" not in repr(ready)
