"""What a rank sends in a step: every collective, its axis, payload and wire bytes.

Volumes of arXiv:2104.04473 and arXiv:1910.02054. Logical payloads follow the code that sends them: data
parallelism one flat float32 bucket per unit, FSDP2 one gather per unit and use with
padded shards, tensor parallelism one sum per row-cut matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.layout.scalars import SCALAR_DTYPE, STEP_SCALARS
from workbench.layout.shards import SHARD_RULE
from workbench.planner.activations import COMPUTE_BYTES, FULL, input_bytes
from workbench.planner.backend import ring_passes
from workbench.planner.case import CONTEXTS, Case, remembered
from workbench.planner.numbers import (
    BlockNumbers,
    ModelNumbers,
    is_v_shaped,
    last_stage,
    layers_here,
)
from workbench.planner.numeric import Num, ceil_div, never, where
from workbench.planner.states import elements_of, elements_of_block, expert_elements
from workbench.units import DTYPE_BYTES


@dataclass(frozen=True, kw_only=True)
class Message:
    """Equal operations of one rank in one step.

    Args:
        op: The logical operation.
        axis: The axis whose group carries it, or "world".
        purpose: Why it is sent.
        count: Operations per step.
        each: Logical payload of one, bytes.
        hides: What it can hide under: "backward", "forward", "" for nothing (each
            micro-batch waits for it), or "end" (the step does, once).
    """

    op: str
    axis: str
    purpose: str
    count: Num
    each: Num
    hides: str = ""


def messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield everything the judged rank sends in a step; degrees of 1 send nothing."""
    yield Message(
        op="all_reduce",
        axis="world",
        purpose="loss",
        count=where(case.num_ranks > 1, 1, 0),
        each=DTYPE_BYTES[SCALAR_DTYPE] * len(STEP_SCALARS),
        hides="end",
    )
    yield from _gradient_messages(numbers, case)
    yield from _gather_messages(numbers, case)
    yield from slot_messages(numbers, case)


def _expert_messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield ep's exchanges: each chosen copy of a token goes out and comes back.

    Twice forward and twice backward, with even loads.
    """
    if never(case.ep > 1) or not numbers.experts.total:
        return
    copies = numbers.tokens * case.micro_batch // case.cp * numbers.experts.chosen
    again = where(case.recompute == FULL, 2, 0)
    for block in numbers.blocks:
        if not any(p.ep_dim is not None for p in block.parameters):
            continue
        here = layers_here(block, numbers, case) * case.num_microbatches
        yield Message(
            op="all_to_all",
            axis="ep",
            purpose="tokens",
            count=where(case.ep > 1, here, 0) * (4 + again),
            each=copies * numbers.hidden * COMPUTE_BYTES[case.precision],
        )


def slot_messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield what every micro-batch waits for: tp, pp, cp and ep."""
    yield from _tensor_messages(numbers, case)
    yield from _pipeline_messages(numbers, case)
    yield from _context_messages(numbers, case)
    yield from _expert_messages(numbers, case)


def sent_by(message: Message, case: Case, backend: str) -> Num:
    """Return wire bytes per step of a message kind, floored per operation."""
    size = case.degree(message.axis)
    passes = ring_passes(backend, message.op)
    if message.op == "send":
        return message.count * message.each
    return message.count * (message.each * passes * (size - 1) // size)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A communication unit: how many the stage has, elements of one, of its experts."""

    count: Num
    whole: Num
    padded: Num
    experts: Num
    is_root: bool


def units(numbers: ModelNumbers, case: Case) -> tuple[Unit, ...]:
    """Return one unit per kind of repeated block, and the root with all the rest."""
    return remembered(case.stage_memo, ("units",), lambda: _units(numbers, case))


def _units(numbers: ModelNumbers, case: Case) -> tuple[Unit, ...]:
    found, root_whole, root_padded = [], 0, 0
    for block in numbers.blocks:
        here = layers_here(block, numbers, case)
        whole, _, padded = elements_of_block(block, case)
        if block.indexed:
            found.append(
                Unit(
                    count=here,
                    whole=whole,
                    padded=padded,
                    experts=expert_elements(block, case),
                    is_root=False,
                )
            )
        else:
            root_whole = root_whole + here * whole
            root_padded = root_padded + here * padded
    some = where(root_whole > 0, 1, 0)
    root = Unit(
        count=some, whole=root_whole, padded=root_padded, experts=0, is_root=True
    )
    return (*found, root)


def _gradient_messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield the sums of gradients over replicas: dp, and cp and ep beside it."""
    per = numbers.profile.states[case.precision]
    for unit in units(numbers, case):
        each = where(case.fsdp > 1, unit.padded, unit.whole) * per.reduce
        summed = where(case.dp > 1, unit.count, 0)
        plain = where(case.zero == 0, summed, 0)
        yield Message(
            op="all_reduce",
            axis="dp",
            purpose="gradients",
            count=plain,
            each=each,
            hides="backward",
        )
        uses = where(case.zero >= 3, case.num_microbatches, 1)
        yield Message(
            op="reduce_scatter",
            axis="dp",
            purpose="gradients",
            count=(summed - plain) * uses,
            each=each,
            hides="backward",
        )
        yield Message(
            op="all_gather",
            axis="dp",
            purpose="weights",
            count=(summed - plain) * where(case.zero >= 3, 2 * uses, 1),
            each=where(case.fsdp > 1, unit.padded, unit.whole) * per.gather,
            hides="forward",
        )
    for axis in ("cp", "ep"):
        if never(case.degree(axis) > 1):
            continue
        for unit in units(numbers, case):
            # Ranks of ep hold different experts: only the rest is summed over them.
            apart = unit.experts if axis == "ep" else 0
            held = where(case.fsdp > 1, unit.padded - apart, unit.whole - apart)
            yield Message(
                op="all_reduce",
                axis=axis,
                purpose="gradients",
                count=where(case.degree(axis) > 1, unit.count, 0),
                each=held * per.reduce,
                hides="backward",
            )


def _gather_messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield FSDP2's gathers of weights and scatters of gradients.

    Each micro-batch gathers every unit in its forward and resharded blocks once more in
    its backward; gradients are scattered each time or after the last (the profile).
    """
    if never(case.fsdp > 1):
        return
    per = numbers.profile.states[case.precision]
    each_time = numbers.profile.reduces_each_microbatch
    for unit in units(numbers, case):
        sharded = where(case.fsdp > 1, unit.count, 0)
        uses = sharded * case.num_microbatches
        reshards = (
            SHARD_RULE.reshard_root if unit.is_root else SHARD_RULE.reshard_blocks
        )
        yield Message(
            op="all_gather",
            axis="fsdp",
            purpose="weights",
            count=uses * (2 if reshards else 1),
            each=unit.padded * case.fsdp * per.gather,
            hides="forward",
        )
        yield Message(
            op="reduce_scatter",
            axis="fsdp",
            purpose="gradients",
            count=uses if each_time else sharded,
            each=unit.padded * case.fsdp * per.reduce,
            hides="backward",
        )


def _tensor_messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield tp's sums of activations, all of one whole hidden tensor.

    Each row-cut matrix ends a region whose output is summed forward and whose input's
    gradient is summed backward; with sequence parallelism each becomes a scatter and
    has a gather as its counterpart. The embedding sums its output, the head is entered.
    Full recompute repeats a layer but for the sum at its very end, which nothing needs.
    """
    if never(case.tp > 1):
        return
    each = _hidden_bytes(numbers, case)
    again = where(case.recompute == FULL, 1, 0)
    regather = 1 if numbers.profile.gathers_inputs_again else 0
    for block in numbers.blocks:
        here = layers_here(block, numbers, case) * case.num_microbatches
        used = where(case.tp > 1, here, 0)
        ends, is_cut = _row_cut_matrices(block), where(case.sp == 1, used, 0)
        if block.kind == "head":
            yield from _head_messages(numbers, case, used)
        repeats = again * max(ends - 1, 0) if block.indexed else 0
        counts = {
            "all_reduce": (used - is_cut) * (2 * ends + repeats),
            "reduce_scatter": is_cut * (2 * ends + repeats),
            "all_gather": is_cut * ends * ((2 + regather) + again),
        }
        if block.kind == "embedding":
            counts = {"all_reduce": used * ends, "all_gather": is_cut * ends}
        elif block.kind == "head":
            counts = {
                "all_reduce": (used - is_cut) * ends,
                "reduce_scatter": is_cut * ends,
                "all_gather": is_cut * ends * (1 + regather),
            }
        for op, count in counts.items():
            yield Message(
                op=op, axis="tp", purpose="activations", count=count, each=each
            )
    yield _partial_gradients(numbers, case)


def _partial_gradients(numbers: ModelNumbers, case: Case) -> Message:
    """Return the one sum a step of gradients that saw a rank's own tokens alone.

    With sequence parallelism these are the norms and the biases behind row-cut matrices:
    what tp does not cut, of everything between the embedding and the head.
    """
    elements: Num = 0
    for block in numbers.blocks:
        if block.kind in {"embedding", "head"}:
            continue
        uncut = tuple(p for p in block.parameters if p.tp_dim is None)
        _, local, _ = elements_of(uncut, case)
        elements = elements + layers_here(block, numbers, case) * local
    per = numbers.profile.states[case.precision]
    return Message(
        op="all_reduce",
        axis="tp",
        purpose="gradients",
        count=where((case.sp == 1) & (case.tp > 1) & (elements > 0), 1, 0),
        each=elements * per.gradients,
        hides="end",
    )


def _head_messages(numbers: ModelNumbers, case: Case, used: Num) -> Iterator[Message]:
    """Yield what a vocabulary-cut loss sums, float32 per token.

    First the largest logit, then the sum of exponentials beside the target's logit.
    """
    tokens = numbers.tokens * case.micro_batch // case.cp
    for scalars in (1, 2):
        yield Message(
            op="all_reduce",
            axis="tp",
            purpose="loss",
            count=used,
            each=scalars * DTYPE_BYTES["float32"] * tokens,
        )


def _hidden_bytes(numbers: ModelNumbers, case: Case) -> Num:
    elements = next(b.boundary for b in numbers.blocks if b.kind != "head")
    return elements * case.micro_batch * COMPUTE_BYTES[case.precision] // case.cp


def _row_cut_matrices(block: BlockNumbers) -> int:
    """Return how often a block's forward sums over tp; a vocabulary cut counts once."""
    if block.kind in {"embedding", "head"}:
        return 1 if any(p.tp_dim is not None for p in block.parameters) else 0
    return sum(
        1 for p in block.parameters if len(p.shape) > 1 and p.tp_dim == len(p.shape) - 1
    )


def _pipeline_messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield a stage's boundary tensors: forward to the next, backward to the previous."""
    layer = next((b for b in numbers.blocks if b.indexed), numbers.blocks[0])
    per_microbatch = case.chunks * case.num_microbatches
    is_last = where(case.stage == last_stage(case), case.num_microbatches, 0)
    is_first = where(case.stage == 0, case.num_microbatches, 0)
    turns = where(
        is_v_shaped(case) & (case.stage == case.pp - 1), 2 * case.num_microbatches, 0
    )
    # Each tp rank sends its part of a boundary that all of them hold.
    cut = numbers.profile.scatters_sends
    scattered = where(case.sp == 0, case.tp, 1) if cut else 1
    yield Message(
        op="send",
        axis="pp",
        purpose="activations",
        count=where(case.pp > 1, 2 * per_microbatch - is_last - is_first - turns, 0),
        each=input_bytes(layer, case) // scattered,
    )


def _context_messages(numbers: ModelNumbers, case: Case) -> Iterator[Message]:
    """Yield cp's exchange of keys and values, or Ulysses' of heads."""
    if never(case.cp > 1):
        return
    size = COMPUTE_BYTES[case.precision]
    tokens = numbers.tokens * case.micro_batch // case.cp
    kv = 2 * size * ceil_div(numbers.kv_width, case.tp) * tokens
    queries = size * ceil_div(numbers.query_width, case.tp) * tokens
    for block in numbers.blocks:
        if not (block.indexed and block.core_flops):
            continue
        here = layers_here(block, numbers, case) * case.num_microbatches
        used = where(case.cp > 1, here, 0)
        ring, gather, ulysses = (
            where(case.context == CONTEXTS.index(kind), used, 0)
            for kind in ("ring", "all_gather", "ulysses")
        )
        yield Message(
            op="send",
            axis="cp",
            purpose="keys and values",
            count=ring * (case.cp - 1) * 3,
            each=kv,
        )
        for op in ("all_gather", "reduce_scatter"):
            yield Message(
                op=op,
                axis="cp",
                purpose="keys and values",
                count=gather,
                each=kv * case.cp,
            )
        # Queries, keys, values and the output apart, forward and backward.
        for each in (queries, kv // 2):
            yield Message(
                op="all_to_all",
                axis="cp",
                purpose="heads",
                count=ulysses * 4,
                each=each,
            )
