"""Sets of ranks as text, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SessionError
from workbench.protocol.spans import parse_spans, spans_text


@given(st.sets(st.integers(0, 300), min_size=1))
def test_text_and_back(ranks):
    assert parse_spans(spans_text(ranks)) == tuple(sorted(ranks))


@pytest.mark.parametrize("text", ["", "a", "1-", "0,,2", "-1"])
def test_what_names_no_ranks_is_refused(text):
    with pytest.raises(SessionError, match="names no ranks"):
        parse_spans(text)
