"""Seconds of collectives: start-up that grows with the group, then bandwidth.

Inside a node a ring runs at the link's rate; across nodes at the rate of
the group's own network ports together, or the inner link's if that is slower. Ranks of
other groups use other ports.
"""

import math

from workbench.hardware import ClusterSpec, Link
from workbench.planner.backend import ring_passes
from workbench.planner.case import Case
from workbench.planner.numeric import Num, largest, smallest, where
from workbench.planner.traffic import Message


def message_s(message: Message, sent: Num, case: Case, hardware: ClusterSpec) -> Num:
    """Return seconds of all messages of a kind, one after another.

    Args:
        message: What is sent.
        sent: Wire bytes of all of them, per rank.
        case: The layout; its strides say how far a group reaches.
        hardware: Whose links carry it.
    """
    near, far = span_links(hardware)
    per_node = hardware.groups[0].devices_per_node
    size, stride = case.degree(message.axis), case.strides[message.axis]
    inside = smallest(size, largest(per_node // stride, 1))
    crosses = stride * size > per_node
    ports = far.bytes_per_s.value * inside
    rate = where(
        crosses, smallest(ports, near.bytes_per_s.value), near.bytes_per_s.value
    )
    start = where(crosses, far.start_up_s.value, near.start_up_s.value)
    if message.op == "send":
        alone = where(crosses, far.bytes_per_s.value, near.bytes_per_s.value)
        return message.count * start + sent / alone
    backend = hardware.groups[0].device.backend
    hops = ring_passes(backend, message.op) / 2 * (1 + log2(size))
    return message.count * start * hops + sent / rate


def log2(number: Num) -> Num:
    """Return the logarithm to base 2, case by case.

    >>> log2(8)
    3.0
    """
    if isinstance(number, int | float):
        return math.log2(number)
    import numpy as np

    return np.log2(number)


def span_links(hardware: ClusterSpec) -> tuple[Link, Link]:
    """Return the link inside a node and the one between nodes."""
    near = hardware.link("node")
    reaches = any(link.scope in {"rack", "region"} for link in hardware.links)
    return near, hardware.link("rack") if reaches else near
