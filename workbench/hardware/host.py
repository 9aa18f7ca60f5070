"""This machine as a cluster of CPU ranks: read from the OS when asked, not at import."""

import os
from pathlib import Path

from workbench.hardware.spec import (
    ClusterSpec,
    Constant,
    DeviceGroup,
    DeviceSpec,
    Link,
)
from workbench.units import GIGA

_LOCAL = "an order of magnitude for one core of a server, not measured here"


def this_machine(num_nodes: int = 1) -> ClusterSpec:
    """Return a cluster of CPU ranks: one device per core this process may use.

    Each rank may fill an equal share of the memory that the host (or the container's
    limit) gives; rates are nominal until a probe measures them.
    """
    cores = len(os.sched_getaffinity(0))
    memory = host_memory_bytes()
    group = DeviceGroup(
        device=_cpu_core(memory // cores), num_nodes=num_nodes, devices_per_node=cores
    )
    return ClusterSpec(name="cpu", groups=(group,), links=_links(num_nodes))


def host_memory_bytes() -> int:
    """Return the memory this process may fill: the host's, or its cgroup's if smaller."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(host, *_cgroup_limits(), host)


def _cgroup_limits() -> list[int]:
    paths = (
        Path("/sys/fs/cgroup/memory.max"),
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    )
    texts = [path.read_text().strip() for path in paths if path.is_file()]
    return [int(text) for text in texts if text.isdigit()]


def _cpu_core(memory_bytes: int) -> DeviceSpec:
    # 16 float32 multiply-adds a cycle at 2 GHz: an AVX2 core's usual figure.
    rate = Constant(value=64 * GIGA, origin="nominal", source=_LOCAL)
    return DeviceSpec(
        kind="cpu",
        backend="gloo",
        memory_bytes=Constant(
            value=memory_bytes,
            origin="measured",
            source="sysconf and cgroup limit, divided by the cores at hand",
        ),
        flops_per_s=(("float32", rate), ("bfloat16", rate)),
        memory_bytes_per_s=Constant(value=8 * GIGA, origin="nominal", source=_LOCAL),
        matmul_efficiency=Constant(value=0.6, origin="nominal", source=_LOCAL),
    )


def _links(num_nodes: int) -> tuple[Link, ...]:
    loopback = Link(
        scope="node",
        start_up_s=Constant(
            value=2e-4, origin="nominal", source="gloo all-reduce of 4 bytes, loopback"
        ),
        bytes_per_s=Constant(
            value=0.6 * GIGA, origin="nominal", source="gloo over loopback, 8 MiB"
        ),
    )
    if num_nodes == 1:
        return (loopback,)
    ethernet = Link(
        scope="rack",
        start_up_s=Constant(value=5e-4, origin="nominal", source="gloo over 1 Gbit/s"),
        bytes_per_s=Constant(
            value=0.117 * GIGA, origin="nominal", source="1 Gbit/s less TCP headers"
        ),
    )
    return (loopback, ethernet)
