"""Devices by UUID, as the driver and CUDA_VISIBLE_DEVICES say."""

import pytest

from workbench.cluster.devices import visible_devices


@pytest.fixture
def driver(tmp_path):
    """A driver's folder with eight devices."""
    for number in range(8):
        folder = tmp_path / f"0000:{number:02x}:00.0"
        folder.mkdir()
        (folder / "information").write_text(
            f"Model: \t Test\nGPU UUID: \t GPU-{number}\nBus Location: x\n"
        )
    return tmp_path


def test_all_are_found_in_the_order_of_the_bus(driver, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    assert visible_devices(driver) == tuple(f"GPU-{n}" for n in range(8))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("", ()),
        ("3,1", ("GPU-3", "GPU-1")),
        ("GPU-5", ("GPU-5",)),
        ("MIG-abc,0", ("MIG-abc", "GPU-0")),
        ("0,-1,2", ("GPU-0",)),
        ("9", ()),
    ],
)
def test_the_variable_narrows_them_as_cuda_does(driver, visible, expected):
    assert visible_devices(driver, visible) == expected


def test_a_machine_without_a_driver_has_none(tmp_path):
    assert visible_devices(tmp_path / "none", "0") == ()
