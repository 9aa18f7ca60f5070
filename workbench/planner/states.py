"""Bytes that live between steps: weights, gradients, optimizer, tensor by tensor.

Exact, not estimated: shards follow FSDP2's chunks of dim 0, so an uneven tensor leaves
some ranks fewer rows, or none (`layout.shards`).
"""

from dataclasses import dataclass

from workbench.model import Parameter
from workbench.planner.case import Case, remembered
from workbench.planner.numbers import (
    BlockNumbers,
    ModelNumbers,
    last_stage,
    layers_here,
    local_rows,
)
from workbench.planner.numeric import Num, ceil_div, largest, smallest, where


@dataclass(frozen=True, kw_only=True)
class Held:
    """Elements that the judged rank holds.

    Args:
        whole: Of its stage after tp and ep, before any data sharding.
        local: What the rank keeps of them under fsdp, real rows only.
        padded: The same with every shard padded to a full chunk.
        experts: Of `local`, what belongs to experts.
        num_tensors: Parameter tensors on the stage.
        largest_block: Whole elements of one repeat of the largest repeated block.
        root: Whole elements outside repeated blocks.
    """

    whole: Num
    local: Num
    padded: Num
    experts: Num
    num_tensors: Num
    largest_block: Num
    root: Num


def held(numbers: ModelNumbers, case: Case) -> Held:
    """Count the elements of the judged rank."""
    return remembered(case.stage_memo, ("held",), lambda: _held(numbers, case))


def _held(numbers: ModelNumbers, case: Case) -> Held:
    whole = local = padded = experts = tensors = block_max = root = 0
    for block in numbers.blocks:
        here = layers_here(block, numbers, case)
        one, one_local, one_padded = elements_of_block(block, case)
        whole, local = whole + here * one, local + here * one_local
        padded = padded + here * one_padded
        experts = experts + here * expert_elements(block, case)
        tensors = tensors + here * len(block.parameters)
        if block.indexed:
            block_max = largest(block_max, where(here > 0, one, 0))
        else:
            root = root + here * one
    return Held(
        whole=whole,
        local=local,
        padded=padded,
        experts=experts,
        num_tensors=tensors,
        largest_block=block_max,
        root=root,
    )


def elements_of_block(block: BlockNumbers, case: Case) -> tuple[Num, Num, Num]:
    """Return elements of one repeat: whole, this rank's shard, and a padded shard.

    In a pipeline, a tied output matrix is a copy on the last stage.
    """
    return remembered(
        case.memo, ("elements", block.name), lambda: _elements_of_block(block, case)
    )


def _elements_of_block(block: BlockNumbers, case: Case) -> tuple[Num, Num, Num]:
    owned = elements_of(block.parameters, case)
    if not block.tied:
        return owned
    copied = elements_of(block.tied, case)
    apart = where((case.pp > 1) & (last_stage(case) > 0), 1, 0)
    whole, local, padded = (
        mine + apart * copy for mine, copy in zip(owned, copied, strict=True)
    )
    return whole, local, padded


def expert_elements(block: BlockNumbers, case: Case) -> Num:
    """Return elements of one repeat's experts on this rank's shard."""
    spread = tuple(p for p in block.parameters if p.ep_dim is not None)
    return elements_of(spread, case)[1] if spread else 0


def elements_of(parameters: tuple[Parameter, ...], case: Case) -> tuple[Num, Num, Num]:
    """Return elements of some tensors: whole, this rank's shard, and a padded shard."""
    whole = local = padded = 0
    for parameter in parameters:
        rows, rest = local_rows(parameter, case)
        chunk = ceil_div(rows, case.fsdp)
        mine = smallest(largest(rows - case.shard * chunk, 0), chunk)
        whole = whole + rows * rest
        local = local + mine * rest
        padded = padded + chunk * rest
    return whole, local, padded


@dataclass(frozen=True, kw_only=True)
class States:
    """Bytes of the judged rank between steps."""

    weights: Num
    gradients: Num
    optimizer: Num


def states(numbers: ModelNumbers, case: Case) -> States:
    """Return bytes of weights, gradients and optimizer state.

    ZeRO divides optimizer state (1), gradients too (2) and weights too (3), each as one
    flat run of elements, over all ranks that hold the same ones: dp, cp, and but for
    experts ep.
    """
    per = numbers.profile.states[case.precision]
    have = held(numbers, case)
    copies = case.dp * case.cp
    zero_local = ceil_div(have.local - have.experts, copies * case.ep)
    zero_local = zero_local + ceil_div(have.experts, copies)
    weights = where(case.zero >= 3, zero_local, have.local)
    gradients = where(case.zero >= 2, zero_local, have.local)
    optimizer = where(case.zero >= 1, zero_local, have.local)
    counters = numbers.profile.optimizer_bytes_per_tensor * have.num_tensors
    on_device = 1 - case.offload_optimizer
    return States(
        weights=weights * per.weights * (1 - case.offload_weights),
        gradients=gradients * per.gradients,
        optimizer=(optimizer * per.optimizer + counters) * on_device,
    )
