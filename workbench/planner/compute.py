"""Device seconds of a layer: matrix products, attention, element-wise work, launches.

A roofline with additive terms: each matrix product takes its FLOPs at
the best published rate plus its operands at memory bandwidth, so that narrow or short
products lose efficiency as they do on real devices; what is not a product is bytes; and
the host needs its time to issue every operation.
"""

from dataclasses import dataclass

from workbench.hardware import DeviceSpec
from workbench.model import Parameter
from workbench.planner.activations import COMPUTE_BYTES
from workbench.planner.case import Case, remembered
from workbench.planner.numbers import BlockNumbers, ModelNumbers, local_rows
from workbench.planner.numeric import Num, ceil_div, largest, where

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
        core: Attention's part of the forward.
        host_forward, host_backward: Of the host that issues the operations.
    """

    forward: Num
    backward: Num
    core: Num
    host_forward: Num
    host_backward: Num


def layer_seconds(
    block: BlockNumbers, numbers: ModelNumbers, case: Case, device: DeviceSpec
) -> LayerSeconds:
    """Judge one repeat of a block."""
    return remembered(
        case.memo,
        ("layer_seconds", block.name),
        lambda: _layer_seconds(block, numbers, case, device),
    )


def _layer_seconds(
    block: BlockNumbers, numbers: ModelNumbers, case: Case, device: DeviceSpec
) -> LayerSeconds:
    work, kernels = numbers.profile.work, device.kernels
    matrix_forward, matrix_backward = _matrix_s(block, numbers, case, device)
    core_forward, core_backward = _core_s(block, numbers, case, device)
    moved = _moved_bytes(block, numbers, case) + _cast_bytes(block, numbers, case)
    element = moved / _memory_rate(device)
    share = 1.0 if block.indexed else 0.3
    host = work.operations * share * kernels.host_s.value
    return LayerSeconds(
        forward=matrix_forward + core_forward + element,
        backward=matrix_backward + core_backward + element * work.backward,
        core=core_forward,
        host_forward=host,
        host_backward=host * work.backward,
    )


def _memory_rate(device: DeviceSpec) -> float:
    return device.memory_bytes_per_s.value * device.kernels.memory_efficiency.value


def _matrix_s(
    block: BlockNumbers, numbers: ModelNumbers, case: Case, device: DeviceSpec
) -> tuple[Num, Num]:
    """Return forward and backward seconds of a block's matrix products on this rank.

    The backward multiplies twice: for the input's gradient and for the weight's.
    """
    # Transformer Engine keeps the output matrix out of 8 bits.
    precision = case.precision
    if precision == "fp8" and block.kind == "head":
        precision = "bf16"
    tokens = numbers.tokens * case.micro_batch / case.cp
    forward = backward = 0
    for parameter in block.matrices:
        times, meets, rows, columns = _shape_here(parameter, numbers, case, tokens)
        product = _Product(device=device, precision=precision)
        forward = forward + times * product.seconds(meets, rows, columns)
        backward = backward + times * product.seconds(meets, columns, rows)
        backward = backward + times * product.seconds(rows, columns, meets)
    return forward, backward


def _shape_here(
    parameter: Parameter, numbers: ModelNumbers, case: Case, tokens: Num
) -> tuple[Num, Num, Num, Num]:
    """Return how many equal products a matrix makes: times, tokens, rows, columns.

    Each expert of a rank meets its even share of the tokens of all ranks of ep.
    """
    rows, columns = local_rows(parameter, case)
    if parameter.ep_dim is None:
        return 1, tokens, rows, columns
    experts = numbers.experts
    meets = tokens * experts.chosen * case.ep / experts.total
    inner = parameter.shape[1]
    inner = ceil_div(inner, case.tp) if parameter.tp_dim == 1 else inner
    return rows, meets, inner, columns / inner


@dataclass(frozen=True, kw_only=True)
class _Product:
    """Times matrix products of one precision on one device."""

    device: DeviceSpec
    precision: str

    def seconds(self, rows: Num, columns: Num, inner: Num) -> Num:
        """Return seconds of [rows, inner] x [inner, columns]."""
        peak = self.device.peak(PEAK_DTYPE[self.precision])
        rate = peak * self.device.matmul_efficiency.value
        size = COMPUTE_BYTES[self.precision]
        operands = size * (inner * (rows + columns) + rows * columns)
        busy = wave_share(rows, columns, self.device.kernels.processors)
        flops = 2 * rows * columns * inner
        return flops / (rate * busy) + operands / _memory_rate(self.device)


#: Tiles that libraries choose from (rows, columns), and how close each comes to the best
#: rate: smaller tiles load more per product.
_TILES = ((256, 128, 1.0), (128, 128, 0.93), (128, 64, 0.75))


def wave_share(rows: Num, columns: Num, processors: int) -> Num:
    """Return the share of the rate that tiles leave when the last wave is not full.

    A product is cut into tiles, one per processor at a time; the library takes the tile
    size that ends soonest.

    >>> wave_share(256 * 108, 128, 108)
    1.0
    """
    if not processors:
        return 1.0
    best: Num = 0.0
    for height, width, rate in _TILES:
        exact = rows * columns / (height * width)
        tiles = ceil_div(rows, height) * ceil_div(columns, width)
        waves = ceil_div(tiles, processors)
        best = largest(best, rate * exact / (waves * processors))
    return best


def _cast_bytes(block: BlockNumbers, numbers: ModelNumbers, case: Case) -> Num:
    """Return bytes that casts to 8 bits move: each input and weight read and written."""
    if case.precision != "fp8" or block.kind == "head":
        return 0
    tokens = numbers.tokens * case.micro_batch / case.cp
    moved: Num = 0
    for parameter in block.matrices:
        times, meets, rows, columns = _shape_here(parameter, numbers, case, tokens)
        # Read 16 bits; write 8 bits and 8 bits transposed.
        moved = moved + 4 * times * (meets * columns + rows * columns)
    return moved


def _core_s(
    block: BlockNumbers, numbers: ModelNumbers, case: Case, device: DeviceSpec
) -> tuple[Num, Num]:
    """Return forward and backward seconds of attention scores and weighted values.

    Fused kernels skip what the causal mask hides: half. Their backward computes the
    scores again: 2.5 times the forward (FlashAttention 2, arXiv:2307.08691).
    """
    work = numbers.profile.work
    precision = "bf16" if case.precision == "fp8" else case.precision
    peak = device.peak(PEAK_DTYPE[precision])
    flops = block.core_flops * case.micro_batch / case.tp / case.cp
    if work.score_bytes == 0:
        rate = peak * device.kernels.attention_efficiency.value * work.attention_share
        forward = 0.5 * flops / rate
        return forward, 2.5 * forward
    memory = _memory_rate(device)
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
    heads = numbers.query_width + 2 * numbers.kv_width
    heads = work.head_passes * heads / case.tp
    return tokens * size * (wide + middle + heads)


def issued(device_s: Num, host_s: Num) -> Num:
    """Return the seconds that pass: the host's where it is the slower one."""
    return largest(device_s, host_s)
