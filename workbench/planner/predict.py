"""`plan`: a layout judged on a model and hardware, before anything starts."""

from collections.abc import Mapping
from typing import cast

from workbench.hardware import ClusterSpec
from workbench.layout import Axis, Layout
from workbench.layout.check import check_batch, check_hardware, check_model
from workbench.model import ModelSpec
from workbench.planner.case import case_of
from workbench.planner.compute import PEAK_DTYPE
from workbench.planner.contract import (
    Category,
    CollectiveOp,
    CommPlan,
    MemoryPlan,
    Plan,
    StepTime,
)
from workbench.planner.derivation import WorstRank, derive
from workbench.planner.judge import judge
from workbench.planner.memory import Memory, memory, reserved_bytes
from workbench.planner.numbers import ModelNumbers, model_numbers
from workbench.planner.profiles import profile as named_profile
from workbench.planner.step_time import Seconds
from workbench.units import bytes_text

#: 90 percent interval around a predicted step, by the least sure constant in it. Of the
#: published steps that were not fitted on, nine in ten lie within the second one
#: (tests.bench.published); a machine that was only guessed at has the last.
INTERVALS = {"measured": (0.85, 1.2), "published": (0.8, 1.25), "nominal": (0.4, 2.5)}


def plan(
    model: ModelSpec,
    hardware: ClusterSpec,
    layout: Layout,
    *,
    global_batch: int,
    profile: str = "workbench",
) -> Plan:
    """Judge a layout: memory, traffic, step time, whether it fits and why not.

    Args:
        model: What is trained.
        hardware: On what.
        layout: Who does what.
        global_batch: Samples per step over all ranks.
        profile: The framework whose facts hold, see `planner.profiles`.

    Raises:
        LayoutError: Degrees that the model, batch or cluster do not divide by.
        PlanError: An unknown profile.
    """
    check_hardware(layout, hardware)
    check_model(layout, model)
    check_batch(layout, global_batch)
    numbers = model_numbers(model, named_profile(profile))
    judgement = judge(numbers, case_of(layout, global_batch=global_batch), hardware)
    case, seconds = judgement.case, judgement.seconds
    by_rank = _memory_of_ranks(numbers, layout, hardware, global_batch)
    time = _step_time(seconds, hardware)
    reasons = _reasons(by_rank)
    peak = hardware.groups[0].device.peak(PEAK_DTYPE[layout.precision])
    model_flops = 3 * model.forward_flops * global_batch
    mfu = model_flops / (layout.num_ranks * peak * time.total_s)
    return Plan(
        model=model,
        hardware=hardware,
        layout=layout,
        global_batch=global_batch,
        profile=profile,
        memory=by_rank,
        comm=_comm(seconds),
        step_time=time,
        mfu=mfu,
        hfu=mfu * seconds.hardware_flops / seconds.model_flops,
        fits=not reasons,
        reasons=reasons,
        explanations=derive(
            numbers, case, hardware, _worst(layout, by_rank), seconds, time, mfu
        ),
    )


def _worst(layout: Layout, by_rank: tuple[MemoryPlan, ...]) -> WorstRank:
    """Return the rank with the highest peak, its memory and its place."""
    worst = max(by_rank, key=lambda m: m.peak_bytes)
    place = layout.coordinates(worst.rank)
    return WorstRank(memory=worst, stage=place[Axis.PP], shard=place[Axis.FSDP])


def _memory_of_ranks(
    numbers: ModelNumbers, layout: Layout, hardware: ClusterSpec, global_batch: int
) -> tuple[MemoryPlan, ...]:
    """Judge each rank; ranks with the same stage and shard share one judgement."""
    judged: dict[tuple[int, int], Memory] = {}
    capacity = int(hardware.groups[0].device.memory_bytes.value)
    ranks = []
    for rank in range(layout.num_ranks):
        place = layout.coordinates(rank)
        key = place[Axis.PP], place[Axis.FSDP]
        if key not in judged:
            case = case_of(
                layout, global_batch=global_batch, stage=key[0], shard=key[1]
            )
            judged[key] = memory(numbers, case)
        reserved = reserved_bytes(numbers, judged[key].peak)
        ranks.append(_memory_plan(rank, judged[key], reserved, capacity))
    return tuple(ranks)


def _memory_plan(
    rank: int, judged: Memory, reserved: float, capacity: int
) -> MemoryPlan:
    categories: Mapping[Category, int] = {
        "weights": int(judged.weights),
        "gradients": int(judged.gradients),
        "optimizer": int(judged.optimizer),
        "activations": int(judged.activations),
        "buffers": int(judged.buffers),
        "workspace": int(judged.workspace),
    }
    return MemoryPlan(
        rank=rank,
        by_category=categories,
        peak_bytes=int(judged.peak),
        reserved_bytes=int(reserved),
        capacity_bytes=capacity,
    )


def _comm(seconds: Seconds) -> tuple[CommPlan, ...]:
    """Sum messages of the same operation, axis and purpose; leave out what is not sent."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for timed in seconds.timed:
        message = timed.message
        if not message.count:
            continue
        row = rows.setdefault((message.op, message.axis, message.purpose), [0.0] * 5)
        values = (
            message.count,
            message.count * message.each,
            timed.sent,
            timed.seconds,
            timed.exposed,
        )
        for place, value in enumerate(values):
            row[place] += value
    return tuple(
        CommPlan(
            op=cast("CollectiveOp", op),
            axis=axis,
            purpose=purpose,
            count=int(row[0]),
            payload_bytes=int(row[1]),
            sent_bytes=int(row[2]),
            seconds=row[3],
            exposed_seconds=row[4],
        )
        for (op, axis, purpose), row in rows.items()
    )


def _step_time(seconds: Seconds, hardware: ClusterSpec) -> StepTime:
    total = seconds.total
    low, high = INTERVALS[least_sure(hardware)]
    return StepTime(
        compute_s=float(seconds.compute),
        exposed_comm_s=float(seconds.exposed),
        bubble_s=float(seconds.bubble),
        optimizer_s=float(seconds.optimizer),
        input_s=0.0,
        low_s=float(total) * low,
        high_s=float(total) * high,
    )


def least_sure(hardware: ClusterSpec) -> str:
    """Return the least sure origin among the constants that a step's time rests on."""
    device = hardware.groups[0].device
    constants = [
        device.matmul_efficiency,
        *(link.bytes_per_s for link in hardware.links),
        *(link.start_up_s for link in hardware.links),
    ]
    origins = {constant.origin for constant in constants}
    return next(o for o in ("nominal", "published", "measured") if o in origins)


def _reasons(by_rank: tuple[MemoryPlan, ...]) -> tuple[str, ...]:
    """Say which ranks do not hold their part, and what takes most of it."""
    over = [m for m in by_rank if m.reserved_bytes > m.capacity_bytes]
    if not over:
        return ()
    worst = max(over, key=lambda m: m.peak_bytes)
    most = max(worst.by_category, key=lambda name: worst.by_category[name])
    return (
        f"rank {worst.rank} peaks at {bytes_text(worst.peak_bytes)} of tensors, needs "
        f"{bytes_text(worst.reserved_bytes)} with what lies beside them and has "
        f"{bytes_text(worst.capacity_bytes)}; {most} take "
        f"{bytes_text(worst.by_category[most])}; {len(over)} of {len(by_rank)} ranks "
        "are over",
    )
