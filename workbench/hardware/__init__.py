"""ON WHAT it is trained, as numbers: devices, memories, links, and where each is from."""

from workbench.hardware.presets import NODES, hardware
from workbench.hardware.spec import ClusterSpec, Constant, DeviceGroup, DeviceSpec, Link

__all__ = [
    "NODES",
    "ClusterSpec",
    "Constant",
    "DeviceGroup",
    "DeviceSpec",
    "Link",
    "hardware",
]
