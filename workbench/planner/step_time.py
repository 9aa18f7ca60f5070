"""Seconds of a step, put together.

A stage's slot is one micro-batch forward and backward with all communication that it
waits for. Slots make the pipeline; sums of gradients and gathers of weights hide under
compute where the framework overlaps them; the optimizer follows.
"""

from dataclasses import dataclass

from workbench.hardware import ClusterSpec, DeviceSpec
from workbench.planner.activations import FULL, SELECTIVE
from workbench.planner.case import SCHEDULES, Case, remembered
from workbench.planner.compute import issued, layer_seconds
from workbench.planner.network import message_s
from workbench.planner.numbers import ModelNumbers, layers_here
from workbench.planner.numeric import Num, largest, smallest, where
from workbench.planner.profiles import Profile
from workbench.planner.states import held
from workbench.planner.traffic import Message, messages, sent_by, slot_messages


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One kind of message with its seconds per step."""

    message: Message
    sent: Num
    seconds: Num
    exposed: Num


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One micro-batch on one stage: device seconds, waited communication, FLOPs.

    `forward` and `backward` hold the wait for a slower host, and replays.
    """

    forward: Num
    backward: Num
    comm: Num
    flops: Num
    replayed_flops: Num

    @property
    def total(self) -> Num:
        """Seconds of the slot."""
        return self.forward + self.backward + self.comm


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """A step's seconds on the judged stage, the slowest one's slots setting the pace."""

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

    @property
    def total(self) -> Num:
        """Seconds of the whole step."""
        return self.compute + self.bubble + self.optimizer + self.exposed


def telling_cases(case: Case) -> tuple[Case, Case, Case]:
    """Return a case at the first, second and last stage.

    Layers and micro-batches in flight only fall from one inner stage to the next, so no
    other stage is fuller or slower than these.
    """
    zero = 0 * case.pp
    second = smallest(1, case.pp - 1) + zero
    return case.at(stage=zero), case.at(stage=second), case.at(stage=case.pp - 1)


def step_seconds(
    numbers: ModelNumbers,
    case: Case,
    hardware: ClusterSpec,
    stages: tuple[Case, Case, Case],
) -> Seconds:
    """Judge the time of one step on one kind of device.

    Args:
        numbers: Of the model.
        hardware: Whose first kind of device runs it.
        case: At its slowest stage.
        stages: The same at the stages of `telling_cases`.
    """
    device = hardware.groups[0].device
    slot = slot_of(numbers, case, hardware)
    count = case.num_microbatches
    timed = _timed(numbers, case, hardware, slot)
    return Seconds(
        slot=slot.total,
        compute=(slot.forward + slot.backward) * count,
        bubble=bubble_s(numbers, case, hardware, stages),
        optimizer=_optimizer_s(numbers, case, device),
        timed=timed,
        model_flops=slot.flops * count,
        hardware_flops=(slot.flops + slot.replayed_flops) * count,
    )


def slot_of(numbers: ModelNumbers, case: Case, hardware: ClusterSpec) -> Slot:
    """Judge one micro-batch on the judged stage."""
    return remembered(
        case.stage_memo, ("slot",), lambda: _slot_of(numbers, case, hardware)
    )


def _slot_of(numbers: ModelNumbers, case: Case, hardware: ClusterSpec) -> Slot:
    device = hardware.groups[0].device
    comm = _slot_comm_s(numbers, case, hardware) / case.num_microbatches
    forward = backward = host_forward = host_backward = flops = replayed = 0
    for block in numbers.blocks:
        here = layers_here(block, numbers, case)
        one = layer_seconds(block, numbers, case, device)
        again = _replayed_share(numbers, case) if block.indexed else 0
        work = (block.matrix_flops + block.core_flops) * case.micro_batch
        work = here * work / case.tp / case.cp
        flops, replayed = flops + 3 * work, replayed + again * work
        forward = forward + here * one.forward
        core = where(case.recompute == SELECTIVE, one.core, 0) if block.indexed else 0
        backward = backward + here * (one.backward + again * one.forward + core)
        host_forward = host_forward + here * one.host_forward
        host_backward = host_backward + here * (
            one.host_backward + again * one.host_forward
        )
    # Where the host is slower than device and network together, the device waits.
    device_s, host_s = forward + backward + comm, host_forward + host_backward
    wait = issued(device_s, host_s) - device_s
    share = forward / (forward + backward)
    return Slot(
        forward=forward + wait * share,
        backward=backward + wait * (1 - share),
        comm=comm,
        flops=flops,
        replayed_flops=replayed,
    )


def _replayed_share(numbers: ModelNumbers, case: Case) -> Num:
    """Return the share of a layer's forward that its backward runs again.

    Selective recompute runs attention's core again; some frameworks more than that.
    """
    selective = numbers.profile.selective_share
    return where(
        case.recompute == FULL, 1, where(case.recompute == SELECTIVE, selective, 0)
    )


def bubble_s(
    numbers: ModelNumbers,
    case: Case,
    hardware: ClusterSpec,
    stages: tuple[Case, Case, Case],
) -> Num:
    """Return seconds that the slowest stage waits for the others (arXiv:2104.04473, arXiv:2401.10241).

    1F1B and GPipe: one slot of each other stage. Interleaving divides by the chunks;
    ZB-H1 fills in the weight part, which is half a backward; the V shapes fill all.
    """
    slot = slot_of(numbers, case, hardware)
    first, inner, last = (slot_of(numbers, at, hardware).total for at in stages)
    # One slot of every other stage; inner stages are taken as equal.
    others = first + last + inner * largest(case.pp - 2, 0) - slot.total
    interleaved = case.schedule == SCHEDULES.index("interleaved")
    idle = others / where(interleaved, case.chunks, 1)
    weight_part = slot.backward / 2
    filled = largest(idle - 2 * weight_part * (case.pp - 1), 0)
    idle = where(case.schedule == SCHEDULES.index("zb-h1"), filled, idle)
    full = (case.schedule == SCHEDULES.index("zb-v")) | (
        case.schedule == SCHEDULES.index("dualpipe-v")
    )
    return where(case.pp > 1, where(full, 0.0, idle), 0.0)


def _optimizer_s(numbers: ModelNumbers, case: Case, device: DeviceSpec) -> Num:
    """Return seconds of the update: about 30 bytes moved per element held."""
    have = held(numbers, case)
    local = have.local / where(case.zero >= 1, case.dp * case.cp, 1)
    efficiency = device.kernels.memory_efficiency.value
    return 30 * local / (device.memory_bytes_per_s.value * efficiency)


def _slot_comm_s(numbers: ModelNumbers, case: Case, hardware: ClusterSpec) -> Num:
    """Return seconds per step of messages that every slot waits for."""
    backend = hardware.groups[0].device.backend
    total: Num = 0
    for message in slot_messages(numbers, case):
        sent = sent_by(message, case, backend)
        seconds = message_s(message, sent, case, hardware)
        total = total + seconds * _waited(message, numbers.profile)
    return total


def _waited(message: Message, profile: Profile) -> float:
    """Return the share of a slot's message that the slot waits for."""
    if message.axis == "tp":
        return profile.tensor_exposed
    return profile.context_exposed if message.axis == "cp" else 1.0


def _timed(
    numbers: ModelNumbers, case: Case, hardware: ClusterSpec, slot: Slot
) -> tuple[Timed, ...]:
    """Judge every message; what hides takes the room that compute leaves, in order."""
    backend = hardware.groups[0].device.backend
    profile = numbers.profile
    room = _rooms(case, slot)
    timed = []
    for message in messages(numbers, case):
        sent = sent_by(message, case, backend)
        seconds = message_s(message, sent, case, hardware)
        exposed = seconds * (1.0 if message.hides else _waited(message, profile))
        if message.hides and profile.overlaps_gradients:
            # The first gather and the last scatter have nothing to hide under.
            bare = seconds / largest(message.count, 1)
            hidden = smallest(largest(seconds - bare, 0), room[message.hides])
            room[message.hides] = room[message.hides] - hidden
            exposed = seconds - hidden
        timed.append(
            Timed(message=message, sent=sent, seconds=seconds, exposed=exposed)
        )
    return tuple(timed)


def _rooms(case: Case, slot: Slot) -> dict[str, Num]:
    """Return seconds that messages can hide under, by when they run.

    Sharded weights are gathered and scattered in every micro-batch, plain gradients
    only in the last one's backward.
    """
    sharded = (case.fsdp > 1) | (case.zero >= 3)
    times = where(sharded, case.num_microbatches, 1)
    return {
        "forward": slot.forward * times,
        "backward": slot.backward * times,
        "end": 0 * slot.forward,
    }
