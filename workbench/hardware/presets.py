"""Named clusters: this machine's CPU, and nodes of NVIDIA GPUs by their data sheets."""

import difflib
from dataclasses import dataclass
from types import MappingProxyType

from workbench.errors import HardwareError
from workbench.hardware.host import this_machine
from workbench.hardware.spec import (
    ClusterSpec,
    Constant,
    DeviceGroup,
    DeviceSpec,
    KernelSpec,
    Link,
)
from workbench.units import GIB, GIGA, TERA


@dataclass(frozen=True, kw_only=True)
class NodePreset:
    """One kind of GPU node; rates per GPU and direction, as the data sheet gives them.

    `matmul_efficiency` is the share of the bf16 peak that the best large matrix product
    was published to reach.
    """

    memory_gib: float
    tflops: tuple[tuple[str, float], ...]
    memory_gb_per_s: float
    matmul_efficiency: float
    attention_efficiency: float
    node_gb_per_s: float
    node_start_s: float
    rack_gb_per_s: float
    power_watts: float
    processors: int
    devices_per_node: int = 8
    source: str


_FITTED = (
    "fitted once for all frameworks on a tenth of published step times "
    "(tests.bench.published: rows whose id's hash ends in 0)"
)
_MATMUL = (
    "best published bf16 matrix product (stas00/ml-engineering, maf tables) times what "
    f"a sustained step keeps of it, {_FITTED}"
)
_NVLINK = (
    "80 percent of the one-way NVLink rate, as ring collectives reach "
    "(stas00/ml-engineering; vTrain tables)"
)
_FABRIC = f"one 200 or 400 Gbit/s NIC per GPU, share of it {_FITTED}"
_START_UP = (
    "start-up of an all-reduce over 1 + log2(ranks), fitted on payloads above 1 MiB "
    "(stas00/ml-engineering; vTrain tables)"
)


def _rates(
    float32: float, reduced: float, float8: float = 0
) -> tuple[tuple[str, float], ...]:
    rates = (("float32", float32), ("bfloat16", reduced), ("float16", reduced))
    return (*rates, ("float8", float8)) if float8 else rates


#: Devices with rows among those that constants were fitted on.
CALIBRATED = ("v100", "a100", "a100-40", "h100", "gb200")
_NOT_CALIBRATED = (
    "taken over from the nearest device with published steps; none of this device was "
    "fitted on, so the interval is wide"
)


#: Every named GPU node, 8 GPUs each where not said otherwise.
NODES = MappingProxyType(
    {
        "v100": NodePreset(
            memory_gib=32,
            tflops=(("float32", 15.7), ("float16", 125)),
            memory_gb_per_s=900,
            matmul_efficiency=0.51,
            attention_efficiency=0.3,
            node_gb_per_s=124,
            node_start_s=17e-6,
            rack_gb_per_s=2.6,
            power_watts=300,
            devices_per_node=4,
            processors=80,
            source="NVIDIA V100 SXM2 data sheet; nodes of 4 with 4 x 100 Gbit/s "
            "Omni-Path, at the all-reduce rate measured on Jean Zay",
        ),
        "a100": NodePreset(
            memory_gib=80,
            tflops=_rates(19.5, 312),
            memory_gb_per_s=2039,
            matmul_efficiency=0.85,
            attention_efficiency=0.6,
            node_gb_per_s=230,
            node_start_s=20e-6,
            rack_gb_per_s=23.9,
            power_watts=400,
            processors=108,
            source="NVIDIA A100 80GB SXM data sheet",
        ),
        "a100-40": NodePreset(
            memory_gib=40,
            tflops=_rates(19.5, 312),
            memory_gb_per_s=1555,
            matmul_efficiency=0.85,
            attention_efficiency=0.6,
            node_gb_per_s=230,
            node_start_s=20e-6,
            rack_gb_per_s=23.9,
            power_watts=400,
            processors=108,
            source="NVIDIA A100 40GB SXM data sheet",
        ),
        "h100": NodePreset(
            memory_gib=80,
            tflops=_rates(67, 989, 1979),
            memory_gb_per_s=3350,
            matmul_efficiency=0.736,
            attention_efficiency=0.31,
            node_gb_per_s=365,
            node_start_s=14e-6,
            rack_gb_per_s=47.8,
            power_watts=700,
            processors=132,
            source="NVIDIA H100 SXM data sheet",
        ),
        "h200": NodePreset(
            memory_gib=141 * GIGA / GIB,
            tflops=_rates(67, 989, 1979),
            memory_gb_per_s=4800,
            matmul_efficiency=0.736,
            attention_efficiency=0.31,
            node_gb_per_s=365,
            node_start_s=14e-6,
            rack_gb_per_s=47.8,
            power_watts=700,
            processors=132,
            source="NVIDIA H200 SXM data sheet",
        ),
        "b200": NodePreset(
            memory_gib=180 * GIGA / GIB,
            tflops=_rates(80, 2250, 4500),
            memory_gb_per_s=8000,
            matmul_efficiency=0.63,
            attention_efficiency=0.31,
            node_gb_per_s=680,
            node_start_s=20e-6,
            rack_gb_per_s=47.8,
            power_watts=1000,
            processors=148,
            source="NVIDIA DGX B200 data sheet",
        ),
        "gb200": NodePreset(
            memory_gib=186 * GIGA / GIB,
            tflops=_rates(80, 2450, 4900),
            memory_gb_per_s=8000,
            matmul_efficiency=0.59,
            attention_efficiency=0.31,
            node_gb_per_s=680,
            node_start_s=20e-6,
            rack_gb_per_s=47.8,
            power_watts=1200,
            devices_per_node=72,
            processors=148,
            source="NVIDIA GB200 NVL72 data sheet: one NVLink domain of 72 GPUs",
        ),
        "gh200": NodePreset(
            memory_gib=96,
            tflops=_rates(67, 989, 1979),
            memory_gb_per_s=4000,
            matmul_efficiency=0.77,
            attention_efficiency=0.31,
            node_gb_per_s=120,
            node_start_s=14e-6,
            rack_gb_per_s=23.9,
            power_watts=900,
            devices_per_node=4,
            processors=132,
            source="NVIDIA GH200 data sheet; 4 superchips per node",
        ),
    }
)


def hardware(name: str = "cpu", *, num_nodes: int = 1) -> ClusterSpec:
    """Return a named cluster of equal nodes.

    Args:
        name: "cpu" (this machine's cores and memory) or a key of `NODES`.
        num_nodes: How many nodes.

    Raises:
        HardwareError: An unknown name, or less than one node.

    >>> hardware("h100", num_nodes=2).num_devices
    16
    """
    if num_nodes < 1:
        raise HardwareError(f"num_nodes is {num_nodes}", hint="try num_nodes=1")
    if name == "cpu":
        return this_machine(num_nodes)
    preset = NODES.get(name)
    if preset is None:
        known = ("cpu", *NODES)
        close = difflib.get_close_matches(name, known, n=1)
        raise HardwareError(
            f"no hardware is called {name!r}",
            hint=f"did you mean {close[0]!r}?"
            if close
            else f"known: {', '.join(known)}",
        )
    return _cluster(name, preset, num_nodes)


def _cluster(name: str, preset: NodePreset, num_nodes: int) -> ClusterSpec:
    group = DeviceGroup(
        device=_device(name, preset),
        num_nodes=num_nodes,
        devices_per_node=preset.devices_per_node,
    )
    return ClusterSpec(name=name, groups=(group,), links=_links(preset))


def _device(name: str, preset: NodePreset) -> DeviceSpec:
    def nominal(value: float) -> Constant:
        return Constant(value=value, origin="nominal", source=preset.source)

    return DeviceSpec(
        kind=name,
        backend="nccl",
        memory_bytes=nominal(preset.memory_gib * GIB),
        flops_per_s=tuple((d, nominal(rate * TERA)) for d, rate in preset.tflops),
        memory_bytes_per_s=nominal(preset.memory_gb_per_s * GIGA),
        matmul_efficiency=Constant(
            value=preset.matmul_efficiency,
            origin="published" if name in CALIBRATED else "nominal",
            source=_MATMUL if name in CALIBRATED else _NOT_CALIBRATED,
        ),
        power_watts=preset.power_watts,
        kernels=KernelSpec(
            memory_efficiency=Constant(value=0.92, origin="published", source=_FITTED),
            attention_efficiency=Constant(
                value=preset.attention_efficiency, origin="published", source=_FITTED
            ),
            host_s=Constant(value=1.7e-5, origin="published", source=_FITTED),
            processors=preset.processors,
        ),
    )


def _links(preset: NodePreset) -> tuple[Link, ...]:
    return (
        Link(
            scope="node",
            start_up_s=Constant(
                value=preset.node_start_s, origin="published", source=_START_UP
            ),
            bytes_per_s=Constant(
                value=preset.node_gb_per_s * GIGA, origin="published", source=_NVLINK
            ),
        ),
        Link(
            scope="rack",
            start_up_s=Constant(value=7e-5, origin="published", source=_START_UP),
            bytes_per_s=Constant(
                value=preset.rack_gb_per_s * GIGA, origin="published", source=_FABRIC
            ),
        ),
    )
