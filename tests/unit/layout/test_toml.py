"""A layout file with a mistake is refused with the nearest valid key."""

import pytest

from workbench.errors import LayoutError
from workbench.layout import Axis, Layout, load_layout


def test_a_typo_is_named_with_the_nearest_key(tmp_path):
    path = tmp_path / "layout.toml"
    path.write_text("[layout]\nfdsp = 2\n")

    with pytest.raises(LayoutError) as caught:
        load_layout(path)

    assert caught.value.message == f"{path}: a layout has no 'fdsp'"
    assert caught.value.hint == "did you mean 'fsdp'?"


def test_keys_need_no_table():
    assert Layout.from_toml("dp = 2") == Layout(dp=2)


def test_order_is_read_as_axes():
    layout = Layout.from_toml('tp = 2\ndp = 2\norder = ["tp", "dp"]')

    assert layout.order == (Axis.TP, Axis.DP)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp = ", "not TOML"),
        ("layout = 3", "'layout' is not a table"),
        ('order = "dp"', "order is 'dp'"),
        ('order = ["dq"]', "order names 'dq'"),
        ('dp = "2"', "dp is '2'"),
    ],
)
def test_a_broken_file_is_refused(text, message):
    with pytest.raises(LayoutError, match=message):
        Layout.from_toml(text)


def test_a_missing_file_is_said_with_its_path(tmp_path):
    with pytest.raises(LayoutError, match="no layout file at"):
        load_layout(tmp_path / "none.toml")
