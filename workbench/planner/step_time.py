"""Seconds of a step: compute by roofline, communication by start-up and bandwidth.

Formulas of planner.md 3.6, 3.9 and 3.10.
"""

from dataclasses import dataclass

from workbench.hardware import ClusterSpec, DeviceSpec, Link
from workbench.planner.activations import FULL, input_bytes, saved_bytes
from workbench.planner.backend import ring_passes
from workbench.planner.case import SCHEDULES, Case
from workbench.planner.numbers import BlockNumbers, ModelNumbers, layers_here
from workbench.planner.numeric import Num, largest, where
from workbench.planner.states import held
from workbench.planner.traffic import Message, messages, sent_by

_PEAK_DTYPE = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8",
}


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One kind of message with its seconds per step."""

    message: Message
    sent: Num
    seconds: Num
    exposed: Num


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """A step's seconds: `slot` is one micro-batch through the slowest stage."""

    slot: Num
    compute: Num
    bubble: Num
    optimizer: Num
    timed: tuple[Timed, ...]
    model_flops: Num
    hardware_flops: Num

    @property
    def exposed(self) -> Num:
        """Seconds of communication that the step waits for."""
        return sum((t.exposed for t in self.timed), start=0)


def step_seconds(numbers: ModelNumbers, case: Case, hardware: ClusterSpec) -> Seconds:
    """Judge the time of one step on one kind of device."""
    device = hardware.groups[0].device
    forward, core, moved = _stage_work(numbers, case)
    replays = where(case.recompute == FULL, 1, 0)
    flops = (forward + core) * (3 + replays)
    rate = device.peak(_PEAK_DTYPE[case.precision]) * device.matmul_efficiency.value
    traffic_s = moved * (3 + replays) / device.memory_bytes_per_s.value
    slot = flops / rate + traffic_s
    busy = slot * case.num_microbatches
    bubble = slot * _bubble_slots(case)
    backward = busy * (2 + replays) / (3 + replays)
    timed = _timed(numbers, case, hardware, backward)
    return Seconds(
        slot=slot,
        compute=busy,
        bubble=bubble,
        optimizer=_optimizer_s(numbers, case, device),
        timed=timed,
        model_flops=(forward + core) * 3 * case.num_microbatches,
        hardware_flops=flops * case.num_microbatches,
    )


def _stage_work(numbers: ModelNumbers, case: Case) -> tuple[Num, Num, Num]:
    """Return forward FLOPs in matrices, in attention, and bytes moved, one micro-batch."""
    matrix = core = moved = 0
    for block in numbers.blocks:
        here = layers_here(block, numbers, case)
        share = here * case.micro_batch / case.tp / case.cp
        matrix = matrix + block.matrix_flops * share
        core = core + block.core_flops * share
        moved = moved + here * _moved_bytes(block, case)
    return matrix, core, moved


def _moved_bytes(block: BlockNumbers, case: Case) -> Num:
    """Return bytes that element-wise work moves: each kept tensor written and read."""
    return 2 * saved_bytes(block, case) + 2 * input_bytes(block, case)


def _bubble_slots(case: Case) -> Num:
    """Return idle slots per step: (p - 1) / V of F + B (planner.md 3.4)."""
    idle = (case.pp - 1) / where(
        case.schedule == SCHEDULES.index("interleaved"), case.chunks, 1
    )
    zb_h1 = case.schedule == SCHEDULES.index("zb-h1")
    # W is a third of F + B where forward, input and weight parts are equal.
    idle = where(zb_h1, idle * (1 - 2 / 3), idle)
    full = (case.schedule == SCHEDULES.index("zb-v")) | (
        case.schedule == SCHEDULES.index("dualpipe-v")
    )
    return where(full, 0.0, idle)


def _optimizer_s(numbers: ModelNumbers, case: Case, device: DeviceSpec) -> Num:
    """Return seconds of the update: about 30 bytes moved per element held."""
    have = held(numbers, case)
    local = have.local / where(case.zero >= 1, case.dp, 1)
    return 30 * local / device.memory_bytes_per_s.value


def _timed(
    numbers: ModelNumbers, case: Case, hardware: ClusterSpec, backward_s: Num
) -> tuple[Timed, ...]:
    backend = hardware.groups[0].device.backend
    timed = []
    hidden_s: Num = 0
    for message in messages(numbers, case):
        sent = sent_by(message, case, backend)
        seconds = message_s(message, sent, case, hardware)
        exposed = seconds
        if message.hides and numbers.profile.overlaps_gradients:
            exposed = largest(hidden_s + seconds - backward_s, 0)
            exposed = where(exposed > seconds, seconds, exposed)
            hidden_s = hidden_s + seconds
        timed.append(
            Timed(message=message, sent=sent, seconds=seconds, exposed=exposed)
        )
    return tuple(timed)


def message_s(message: Message, sent: Num, case: Case, hardware: ClusterSpec) -> Num:
    """Return seconds of all messages of a kind: start-up each, then bandwidth."""
    backend = hardware.groups[0].device.backend
    near, far = _span_links(hardware)
    size = case.degree(message.axis)
    span = case.strides[message.axis] * size
    crosses = span > hardware.groups[0].devices_per_node
    start_s = where(crosses, far.start_up_s.value, near.start_up_s.value)
    rate = where(crosses, far.bytes_per_s.value, near.bytes_per_s.value)
    hops = 1 if message.op == "send" else ring_passes(backend, message.op)
    return message.count * start_s * hops + sent / rate


def _span_links(hardware: ClusterSpec) -> tuple[Link, Link]:
    near = hardware.link("node")
    reaches = any(link.scope in {"rack", "region"} for link in hardware.links)
    return near, hardware.link("rack") if reaches else near
