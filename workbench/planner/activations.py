"""Activations: what the forward keeps for the backward, and how many times at once.

Itemised as by Korthikanti et al. (arXiv:2205.05198): each saved tensor with what cuts it, times the
micro-batches that its schedule holds.
"""

from workbench.planner.case import RECOMPUTES, SCHEDULES, Case, remembered
from workbench.planner.numbers import (
    BlockNumbers,
    ModelNumbers,
    is_v_shaped,
    layers_here,
)
from workbench.planner.numeric import Num, largest, smallest, where
from workbench.units import DTYPE_BYTES

FULL = RECOMPUTES.index("full")
SELECTIVE = RECOMPUTES.index("selective")
COMPUTE_BYTES = {
    "fp32": DTYPE_BYTES["float32"],
    "bf16": DTYPE_BYTES["bfloat16"],
    "fp16": DTYPE_BYTES["float16"],
    "fp8": DTYPE_BYTES["bfloat16"],
}


def saved_bytes(numbers: ModelNumbers, block: BlockNumbers, case: Case) -> Num:
    """Return what one repeat keeps for one micro-batch on this rank, no recompute."""
    return remembered(
        case.memo,
        ("saved_bytes", block.name),
        lambda: _saved_bytes(numbers, block, case),
    )


def _saved_bytes(numbers: ModelNumbers, block: BlockNumbers, case: Case) -> Num:
    profile = numbers.profile
    size = COMPUTE_BYTES[case.precision]
    by_sp = where(case.sp == 1, case.tp, 1)
    saved = block.saved
    kept_scores = scores(numbers, block) * profile.work.kept_score_bytes / case.tp
    per_sample = (
        size * (saved.whole + saved.by_tp / case.tp + saved.by_sp / by_sp)
        + saved.fixed_whole
        + saved.fixed_by_tp / where(_keeps_whole_logits(numbers, block), 1, case.tp)
        + where(case.recompute == SELECTIVE, 0, kept_scores)
        + (profile.work.mask_bytes * block.boundary / by_sp if block.indexed else 0)
    )
    return (per_sample * case.micro_batch + size * saved.once) / case.cp


def _keeps_whole_logits(numbers: ModelNumbers, block: BlockNumbers) -> bool:
    return block.kind == "head" and not numbers.profile.logits_cut


def scores(numbers: ModelNumbers, block: BlockNumbers) -> float:
    """Return attention scores of one repeat and sample: core FLOPs are 4 k of each."""
    return block.core_flops / (4 * numbers.head_dim) if numbers.head_dim else 0


def input_bytes(block: BlockNumbers, case: Case) -> Num:
    """Return the input of one repeat, all that full recompute keeps of it."""
    return remembered(
        case.memo, ("input_bytes", block.name), lambda: _input_bytes(block, case)
    )


def _input_bytes(block: BlockNumbers, case: Case) -> Num:
    by_sp = where(case.sp == 1, case.tp, 1)
    elements = block.boundary * case.micro_batch / case.cp / by_sp
    return elements * COMPUTE_BYTES[case.precision]


def kept_bytes(numbers: ModelNumbers, block: BlockNumbers, case: Case) -> Num:
    """Return what one repeat keeps until its backward under the recompute rule."""
    saved = saved_bytes(numbers, block, case)
    if not block.indexed:
        return saved
    # What selective recompute runs again is not kept, in the same share.
    share, alone = numbers.profile.selective_share, input_bytes(block, case)
    some = saved * (1 - share) + alone * share
    kept = where(case.recompute == SELECTIVE, some, saved)
    return where(case.recompute == FULL, alone, kept)


def stage_bytes(numbers: ModelNumbers, case: Case, flight: Num) -> Num:
    """Return what the judged stage keeps, with some micro-batches of it in flight.

    What stands after the layers goes backward as soon as it has gone forward: one
    micro-batch at a time, but for GPipe.
    """
    total: Num = 0
    at_once = where(case.schedule == SCHEDULES.index("gpipe"), flight, 1)
    for block in numbers.blocks:
        ends = not block.indexed and block.first_layer > 0
        kept = layers_here(block, numbers, case) * kept_bytes(numbers, block, case)
        total = total + kept * (at_once if ends else flight)
    return total


def in_flight(case: Case) -> Num:
    """Return how many micro-batches' worth of a stage are held at the peak.

    In units of one micro-batch through *all* chunks of the rank (arXiv:2104.04473, arXiv:2401.10241):
    gpipe m, 1F1B and ZB-H1 min(p - i, m), interleaved
    min((2 (p - i - 1) + (V - 1) p + 1) / V, m), the V shapes p / 2 of two chunks.
    """
    depth, stage, chunks = case.pp, case.stage, case.chunks
    waves = (2 * (depth - stage - 1) + (chunks - 1) * depth + 1) / chunks
    flight = smallest(depth - stage, case.num_microbatches) * 1.0
    interleaved = smallest(waves, case.num_microbatches)
    flight = where(case.schedule == SCHEDULES.index("interleaved"), interleaved, flight)
    flight = where(
        case.schedule == SCHEDULES.index("gpipe"), case.num_microbatches, flight
    )
    v_shaped = smallest(depth * 1.0, case.num_microbatches)
    flight = where(is_v_shaped(case), v_shaped, flight)
    return where(case.pp > 1, flight, 1.0)


def activation_bytes(numbers: ModelNumbers, case: Case) -> Num:
    """Return saved activations of the judged rank at the peak, replay included.

    Where blocks are recomputed, one block's whole set is alive during its replay.
    """
    flight = in_flight(case)
    held = stage_bytes(numbers, case, flight)
    replayed: Num = 0
    for block in numbers.blocks:
        if block.indexed:
            here = layers_here(block, numbers, case)
            replayed = largest(
                replayed, where(here > 0, saved_bytes(numbers, block, case), 0)
            )
    held = held + where(case.recompute == FULL, replayed, 0)
    return where(case.offload_activations == 1, replayed, held)
