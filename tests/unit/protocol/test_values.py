"""Values travel without torch, arrays by their memory."""

import numpy as np
import pytest

from workbench.errors import SessionError
from workbench.session.values import _bytes_to_tensor, from_bytes, to_bytes


def test_plain_values_come_back():
    value = {"a": [1, 2.5, "x", None], "b": (True, b"raw")}

    assert from_bytes(to_bytes(value)) == value


def test_an_array_comes_back_writable():
    array = np.arange(12.0).reshape(3, 4)

    back = from_bytes(to_bytes({"x": array}))["x"]
    back[0, 0] = 7.0

    assert back.shape == (3, 4)
    assert array[0, 0] == 0.0


def test_an_array_s_memory_is_not_pickled():
    parts = to_bytes(np.zeros(10_000))

    assert len(parts[0]) < 1000


def test_bfloat16_without_torch_becomes_float32():
    one_and_minus_two = bytes([0x80, 0x3F, 0x00, 0xC0])

    array = _bytes_to_tensor("bfloat16", (2,), one_and_minus_two)

    assert array.tolist() == [1.0, -2.0]


def test_a_value_that_needs_torch_is_refused_with_the_way_out():
    pickled = b"ctorch\nSize\n."

    with pytest.raises(SessionError, match="import torch first"):
        from_bytes((pickled,))
