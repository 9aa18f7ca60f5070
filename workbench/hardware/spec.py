"""A cluster as numbers: groups of devices and the links between them."""

from dataclasses import dataclass
from typing import Literal

from workbench.errors import HardwareError

Origin = Literal["nominal", "published", "measured"]
Scope = Literal["device", "node", "rack", "region"]

#: Scopes from near to far; a group of ranks uses the farthest scope it spans.
SCOPES: tuple[Scope, ...] = ("device", "node", "rack", "region")


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A number of the hardware and how much to trust it.

    Args:
        value: The number in the unit its field names.
        origin: "nominal" from a data sheet, "published" by a third party, "measured"
            on this machine by a probe.
        source: The data sheet, paper or command.
    """

    value: float
    origin: Origin
    source: str


_MEMORY_EFFICIENCY = Constant(
    value=0.8, origin="nominal", source="a usual share of the data sheet's bandwidth"
)
_ATTENTION_EFFICIENCY = Constant(
    value=0.5, origin="nominal", source="a usual share for fused attention, forward"
)
_HOST_S = Constant(
    value=1e-5, origin="nominal", source="a usual time of one eager torch operation"
)


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """How close a device's kernels come to its nominal rates.

    Args:
        memory_efficiency: Share of memory bandwidth that element-wise kernels reach.
        attention_efficiency: Share of the matrix peak that fused attention reaches.
        host_s: Seconds of the host per operation it issues; a step of small operations
            cannot be faster than that.
        processors: Units that work on one tile of a matrix product each; 0 where
            products are not cut into tiles.
    """

    memory_efficiency: Constant = _MEMORY_EFFICIENCY
    attention_efficiency: Constant = _ATTENTION_EFFICIENCY
    host_s: Constant = _HOST_S
    processors: int = 0


@dataclass(frozen=True, kw_only=True)
class DeviceSpec:
    """One kind of device.

    Args:
        kind: "cpu", "a100-80", "h100", ...
        backend: The process-group backend its ranks use.
        memory_bytes: What one rank may fill.
        flops_per_s: Peak by dtype name ("float32", "bfloat16", ...).
        memory_bytes_per_s: Bandwidth of the device's own memory.
        matmul_efficiency: Share of the peak that large matrix products reach.
        power_watts: Board limit, None where not known.
        kernels: How close kernels come to these rates.
    """

    kind: str
    backend: Literal["gloo", "nccl"]
    memory_bytes: Constant
    flops_per_s: tuple[tuple[str, Constant], ...]
    memory_bytes_per_s: Constant
    matmul_efficiency: Constant
    power_watts: float | None = None
    kernels: KernelSpec = KernelSpec()

    def peak(self, dtype: str) -> float:
        """Return peak FLOP/s for a dtype.

        Raises:
            HardwareError: No figure for this dtype.
        """
        for name, constant in self.flops_per_s:
            if name == dtype:
                return constant.value
        known = ", ".join(name for name, _ in self.flops_per_s)
        raise HardwareError(
            f"{self.kind} has no {dtype} rate", hint=f"known for this device: {known}"
        )


@dataclass(frozen=True, kw_only=True)
class Link:
    """How ranks within one scope reach one another.

    Args:
        scope: The farthest distance this link spans.
        start_up_s: Fixed seconds of one message.
        bytes_per_s: Sustained bytes per second and direction of one rank.
    """

    scope: Scope
    start_up_s: Constant
    bytes_per_s: Constant


@dataclass(frozen=True, kw_only=True)
class DeviceGroup:
    """Equal nodes of equal devices."""

    device: DeviceSpec
    num_nodes: int
    devices_per_node: int

    @property
    def num_devices(self) -> int:
        """Devices in the whole group."""
        return self.num_nodes * self.devices_per_node


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Groups of devices and the links between them.

    Args:
        name: What people call it.
        groups: The kinds of devices; ranks fill them in this order.
        links: One per scope that the cluster has.
        price_per_device_hour: Money, None where not known.
    """

    name: str
    groups: tuple[DeviceGroup, ...]
    links: tuple[Link, ...]
    price_per_device_hour: float | None = None

    def __post_init__(self) -> None:
        if not self.groups or self.num_devices < 1:
            raise HardwareError(f"cluster {self.name!r} has no devices")

    @property
    def num_devices(self) -> int:
        """Devices of all groups."""
        return sum(group.num_devices for group in self.groups)

    def link(self, scope: Scope) -> Link:
        """Return the link for a scope, or the nearest farther one.

        Raises:
            HardwareError: The cluster has no link that reaches this far.
        """
        wanted = SCOPES.index(scope)
        reaching = [link for link in self.links if SCOPES.index(link.scope) >= wanted]
        if not reaching:
            raise HardwareError(f"cluster {self.name!r} has no link of scope {scope}")
        return min(reaching, key=lambda link: SCOPES.index(link.scope))
