"""Hardware presets: this machine as the OS says, GPU nodes as their data sheets say."""

import os

import pytest

from workbench.errors import HardwareError
from workbench.hardware import NODES, hardware
from workbench.units import GIB, TERA


def test_the_cpu_has_the_cores_this_process_may_use():
    assert hardware("cpu").num_devices == len(os.sched_getaffinity(0))


def test_the_cpu_ranks_share_the_machines_memory():
    cluster = hardware("cpu")
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    shares = cluster.groups[0].device.memory_bytes.value * cluster.num_devices

    assert 0 < shares <= host


def test_the_cpu_is_read_when_asked_not_at_import(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})

    assert hardware("cpu").num_devices == 3


def test_an_h100_node_is_as_its_data_sheet():
    device = hardware("h100").groups[0].device

    assert device.peak("bfloat16") == 989 * TERA
    assert device.memory_bytes.value == 80 * GIB


@pytest.mark.parametrize("name", ["cpu", *NODES])
def test_every_constant_says_its_origin_and_source(name):
    device = hardware(name).groups[0].device
    constants = [device.memory_bytes, device.matmul_efficiency]
    constants += [constant for _, constant in device.flops_per_s]
    constants += [link.bytes_per_s for link in hardware(name).links]

    assert all(c.origin in {"nominal", "published", "measured"} for c in constants)
    assert all(c.source for c in constants)


def test_nodes_multiply_devices():
    assert hardware("a100", num_nodes=4).num_devices == 32


def test_an_unknown_gpu_is_named_with_the_nearest():
    with pytest.raises(HardwareError) as caught:
        hardware("h1000")

    assert caught.value.message == "no hardware is called 'h1000'"
    assert caught.value.hint == "did you mean 'h100'?"


def test_no_nodes_are_refused():
    with pytest.raises(HardwareError, match="num_nodes is 0"):
        hardware("h100", num_nodes=0)


def test_a_rate_that_is_not_known_is_said():
    with pytest.raises(HardwareError, match="no float8 rate"):
        hardware("a100").groups[0].device.peak("float8")
