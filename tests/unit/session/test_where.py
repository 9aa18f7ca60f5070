"""Ranks by their place in the layout."""

import pytest

from workbench.errors import SessionError
from workbench.layout import Layout
from workbench.session.where import ranks_where

LAYOUT = Layout(pp=2, dp=2, tp=2, schedule="1f1b", num_microbatches=2)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("tp=0", (0, 2, 4, 6)),
        ("pp=last", (4, 5, 6, 7)),
        ("tp=0,pp=last", (4, 6)),
        ("dp=0-1,tp=first", (0, 2, 4, 6)),
        ("fsdp=0", (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_conditions_choose_ranks(text, ranks):
    assert ranks_where(text, LAYOUT) == ranks


@pytest.mark.parametrize("text", ["tp=2", "tp=x", "dp=1-5", "tp=1-0"])
def test_a_position_beyond_the_degree_is_refused_with_the_degree(text):
    with pytest.raises(SessionError, match=r"degree of .. is 2"):
        ranks_where(text, LAYOUT)


@pytest.mark.parametrize("text", ["zp=0", "tp", ""])
def test_an_unknown_axis_is_refused_with_those_there_are(text):
    with pytest.raises(SessionError, match="names no place") as caught:
        ranks_where(text, LAYOUT)

    assert "pp, dp, fsdp" in caught.value.hint
