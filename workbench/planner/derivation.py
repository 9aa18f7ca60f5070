"""The working of every figure of a plan: formula, numbers, source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workbench.hardware import ClusterSpec, Constant
from workbench.planner.activations import in_flight, kept_bytes, saved_bytes
from workbench.planner.case import Case
from workbench.planner.contract import MemoryPlan, Step, StepTime
from workbench.planner.numbers import ModelNumbers, layers_here
from workbench.planner.states import held
from workbench.planner.step_time import Seconds, Timed
from workbench.units import bytes_text, count_text, seconds_text

_MEMORY_SOURCE = "the moments of planner.memory"


@dataclass(frozen=True, kw_only=True)
class WorstRank:
    """The rank with the highest peak, and where it lies."""

    memory: MemoryPlan
    stage: int
    shard: int


def derive(
    numbers: ModelNumbers,
    case: Case,
    hardware: ClusterSpec,
    worst: WorstRank,
    seconds: Seconds,
    time: StepTime,
    mfu: float,
) -> Mapping[str, tuple[Step, ...]]:
    """Return the derivation of each figure, by name; memory is the worst rank's."""
    held_by = case.of_rank(stage=worst.stage, shard=worst.shard)
    found = dict(_states(numbers, held_by, worst.memory))
    found["memory.activations"] = tuple(_activations(numbers, held_by))
    found["memory.buffers"] = _sum_of(worst.memory, "buffers", _BUFFERS)
    found["memory.workspace"] = _sum_of(worst.memory, "workspace", _WORKSPACE)
    found["memory.peak"] = _peak(worst.memory)
    for timed in seconds.timed:
        if timed.message.count:
            name = f"comm.{timed.message.op}.{timed.message.axis}"
            name = f"{name}.{timed.message.purpose.replace(' ', '_')}"
            found[name] = (*found.get(name, ()), _message(timed, case, hardware))
    found.update(_times(case, hardware, seconds, time))
    found["mfu"] = _mfu(case, time, mfu)
    return found


def _states(
    numbers: ModelNumbers, case: Case, first: MemoryPlan
) -> Iterator[tuple[str, tuple[Step, ...]]]:
    have = held(numbers, case)
    per = numbers.profile.states[case.precision]
    sharing = f"fsdp {case.fsdp}, zero {case.zero} over dp {case.dp}"
    for name, size in (
        ("weights", per.weights),
        ("gradients", per.gradients),
        ("optimizer", per.optimizer),
    ):
        total = first.by_category[name]  # type: ignore[index]
        extra = ""
        if name == "optimizer" and numbers.profile.optimizer_bytes_per_tensor:
            step = numbers.profile.optimizer_bytes_per_tensor
            extra = f" + {step} B x {have.num_tensors} tensors"
        yield (
            f"memory.{name}",
            (
                Step(
                    quantity=f"{name} of rank {first.rank}",
                    formula=f"{have.local:,} elements ({sharing}) x {size} B{extra}",
                    value=f"{total:,} B = {bytes_text(total)}",
                    source=numbers.profile.source,
                ),
            ),
        )


def _activations(numbers: ModelNumbers, case: Case) -> Iterator[Step]:
    flight = in_flight(case)
    for block in numbers.blocks:
        here = layers_here(block, numbers, case)
        if not here:
            continue
        at_once = 1 if not block.indexed and block.first_layer > 0 else flight
        kept = kept_bytes(numbers, block, case)
        saved = saved_bytes(numbers, block, case)
        kind = "kept" if kept == saved else "input alone, the rest recomputed"
        yield Step(
            quantity=f"block {block.name}",
            formula=(
                f"{here} x {kept:,.0f} B ({kind}; {case.micro_batch} samples, "
                f"tp {case.tp}, cp {case.cp}) x {at_once:g} micro-batches in flight"
            ),
            value=bytes_text(here * kept * at_once),
            source="saved tensors of the model, itemised as in Korthikanti et al., arXiv:2205.05198",
        )


_BUFFERS = (
    "padding of shards + casts + most of: whole weights and gradients of gathered units",
    "the moments of planner.memory; FSDP2's window",
)
_WORKSPACE = (
    "fixed buffers + most of: gradients of the logits; the head's gradient; a layer's "
    "output, widest and weight gradient",
    "the moments of planner.memory",
)


def _sum_of(first: MemoryPlan, name: str, what: tuple[str, str]) -> tuple[Step, ...]:
    total = first.by_category[name]  # type: ignore[index]
    return (
        Step(
            quantity=f"{name} of rank {first.rank}",
            formula=what[0],
            value=f"{total:,} B = {bytes_text(total)}",
            source=what[1],
        ),
    )


def _peak(worst: MemoryPlan) -> tuple[Step, ...]:
    parts = " + ".join(
        f"{name} {bytes_text(size)}" for name, size in worst.by_category.items() if size
    )
    return (
        Step(
            quantity=f"peak of rank {worst.rank}",
            formula=f"the higher of first backward and optimizer step; parts: {parts}",
            value=f"{bytes_text(worst.peak_bytes)} of {bytes_text(worst.capacity_bytes)}",
            source=_MEMORY_SOURCE,
        ),
    )


def _message(timed: Timed, case: Case, hardware: ClusterSpec) -> Step:
    message = timed.message
    size = case.degree(message.axis)
    backend = hardware.groups[0].device.backend
    return Step(
        quantity=f"{message.op} of {message.purpose} on {message.axis} ({size} ranks)",
        formula=(
            f"{message.count} x {message.each:,} B payload; {backend} sends "
            f"{int(timed.sent):,} B per rank"
        ),
        value=f"{seconds_text(timed.seconds)}, exposed {seconds_text(timed.exposed)}",
        source="ring algorithms, as planner.network and planner.traffic say",
    )


def _trust(constant: Constant) -> str:
    return f"{constant.origin}: {constant.source}"


def _times(
    case: Case, hardware: ClusterSpec, seconds: Seconds, time: StepTime
) -> Iterator[tuple[str, tuple[Step, ...]]]:
    device = hardware.groups[0].device
    flops = seconds.hardware_flops
    yield (
        "step_time.compute",
        (
            Step(
                quantity="compute of the slowest stage",
                formula=(
                    f"{case.num_microbatches} micro-batches, {count_text(flops)} FLOP "
                    f"at {device.matmul_efficiency.value:.0%} of the {device.kind} peak, "
                    "plus element-wise bytes over memory bandwidth"
                ),
                value=seconds_text(time.compute_s),
                source=_trust(device.matmul_efficiency),
            ),
        ),
    )
    yield (
        "step_time.bubble",
        (
            Step(
                quantity="pipeline bubble",
                formula=f"idle slots of pp {case.pp} x {seconds_text(seconds.slot)}",
                value=seconds_text(time.bubble_s),
                source="Narayanan et al., arXiv:2104.04473, and zero bubble, arXiv:2401.10241",
            ),
        ),
    )
    yield (
        "step_time.optimizer",
        (
            Step(
                quantity="optimizer",
                formula="30 B moved per element held / memory bandwidth",
                value=seconds_text(time.optimizer_s),
                source=_trust(device.memory_bytes_per_s),
            ),
        ),
    )
    yield (
        "step_time.exposed_comm",
        (
            Step(
                quantity="communication that the step waits for",
                formula="sum of the exposed seconds of every comm.* line",
                value=seconds_text(time.exposed_comm_s),
                source="what the framework hides, as planner.profiles says",
            ),
        ),
    )
    yield (
        "step_time.total",
        (
            Step(
                quantity="whole step",
                formula="compute + exposed communication + bubble + optimizer",
                value=(
                    f"{seconds_text(time.total_s)}, 90 percent between "
                    f"{seconds_text(time.low_s)} and {seconds_text(time.high_s)}"
                ),
                source=(
                    "width by the least sure constant of the hardware; "
                    + _trust(device.matmul_efficiency)
                ),
            ),
        ),
    )


def _mfu(case: Case, time: StepTime, mfu: float) -> tuple[Step, ...]:
    return (
        Step(
            quantity="model FLOPs utilisation",
            formula=(
                "3 x forward FLOPs of the global batch (full, not causal, attention) / "
                f"({case.num_ranks} ranks x peak x {seconds_text(time.total_s)})"
            ),
            value=f"{mfu:.1%}",
            source="Narayanan et al., arXiv:2104.04473, appendix",
        ),
    )
