"""Device seconds of a layer: matrix products, attention, element-wise work, launches.

A roofline with additive terms (planner.md 3.9): each matrix product takes its FLOPs at
the best published rate plus its operands at memory bandwidth, so that narrow or short
products lose efficiency as they do on real devices; what is not a product is bytes; and
the host needs its time to issue every operation.
"""

from dataclasses import dataclass

from workbench.hardware import DeviceSpec
from workbench.planner.activations import COMPUTE_BYTES
from workbench.planner.case import Case
from workbench.planner.numbers import BlockNumbers, ModelNumbers, local_rows
from workbench.planner.numeric import Num, largest, where

PEAK_DTYPE = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8",
}


@dataclass(frozen=True, kw_only=True)
class LayerSeconds:
    """Seconds of one repeat of a block for one micro-batch.

    Args:
        forward, backward: Of the device.
        host_forward, host_backward: Of the host that issues the operations.
    """

    forward: Num
    backward: Num
    host_forward: Num
    host_backward: Num


def layer_seconds(
    block: BlockNumbers, numbers: ModelNumbers, case: Case, device: DeviceSpec
) -> LayerSeconds:
    """Judge one repeat of a block."""
    work, kernels = numbers.profile.work, device.kernels
    matrix = _matrix_s(block, numbers, case, device)
    core_forward, core_backward = _core_s(block, numbers, case, device)
    moved = _moved_bytes(block, numbers, case)
    element = moved / (
        device.memory_bytes_per_s.value * kernels.memory_efficiency.value
    )
    share = 1.0 if block.indexed else 0.3
    host = work.operations * share * kernels.host_s.value
    return LayerSeconds(
        forward=matrix + core_forward + element,
        backward=2 * matrix + core_backward + element * work.backward,
        host_forward=host,
        host_backward=host * work.backward,
    )


def _matrix_s(
    block: BlockNumbers, numbers: ModelNumbers, case: Case, device: DeviceSpec
) -> Num:
    """Return forward seconds of a block's matrix products on this rank."""
    rate = device.peak(PEAK_DTYPE[case.precision]) * device.matmul_efficiency.value
    memory = device.memory_bytes_per_s.value * device.kernels.memory_efficiency.value
    size = COMPUTE_BYTES[case.precision]
    tokens = numbers.tokens * case.micro_batch / case.cp
    total: Num = 0
    for parameter in block.matrices:
        rows, columns = local_rows(parameter, case)
        flops = 2 * tokens * rows * columns
        operands = size * (tokens * (rows + columns) + rows * columns)
        total = total + flops / rate + operands / memory
    return total


def _core_s(
    block: BlockNumbers, numbers: ModelNumbers, case: Case, device: DeviceSpec
) -> tuple[Num, Num]:
    """Return forward and backward seconds of attention scores and weighted values.

    Fused kernels skip what the causal mask hides: half. Their backward computes the
    scores again: 2.5 times the forward (FlashAttention 2, arXiv:2307.08691).
    """
    work = numbers.profile.work
    peak = device.peak(PEAK_DTYPE[case.precision])
    flops = block.core_flops * case.micro_batch / case.tp / case.cp
    if work.score_bytes == 0:
        rate = peak * device.kernels.attention_efficiency.value * work.attention_share
        forward = 0.5 * flops / rate
        return forward, 2.5 * forward
    memory = device.memory_bytes_per_s.value * device.kernels.memory_efficiency.value
    # core_flops is 4 x head width per score.
    scores = flops / (4 * max(numbers.head_dim, 1))
    moved = scores * work.score_bytes / memory
    product = flops / (peak * device.matmul_efficiency.value)
    return product + moved, 2 * product + work.backward * moved


def _moved_bytes(block: BlockNumbers, numbers: ModelNumbers, case: Case) -> Num:
    """Return bytes that element-wise kernels move in one forward."""
    work, size = numbers.profile.work, COMPUTE_BYTES[case.precision]
    tokens = numbers.tokens * case.micro_batch / case.cp
    by_sp = where(case.sp == 1, case.tp, 1)
    if block.kind == "head":
        # Logits: written, read in float32 for the loss, its log-probabilities written.
        return tokens * block.boundary / numbers.tokens / case.tp * 12
    if not block.indexed:
        return tokens * numbers.hidden * size * 3 / by_sp
    wide = work.hidden_passes * numbers.hidden / by_sp
    middle = work.middle_passes * block.middle / case.tp
    heads = 2 * (numbers.query_width + 2 * numbers.kv_width) / case.tp
    return tokens * size * (wide + middle + heads)


def issued(device_s: Num, host_s: Num) -> Num:
    """Return the seconds that pass: the host's where it is the slower one."""
    return largest(device_s, host_s)
