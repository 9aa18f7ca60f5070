"""Memory of one rank by category, and the peak of a step (planner.md 3.5)."""

from dataclasses import dataclass

from workbench.planner.activations import COMPUTE_BYTES, activation_bytes, input_bytes
from workbench.planner.case import Case
from workbench.planner.numbers import ModelNumbers, layers_here
from workbench.planner.numeric import Num, largest, where
from workbench.planner.states import Held, held, states


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of the judged rank by category, and the highest point of a step."""

    weights: Num
    gradients: Num
    optimizer: Num
    activations: Num
    buffers: Num
    workspace: Num
    peak: Num


def memory(numbers: ModelNumbers, case: Case) -> Memory:
    """Judge one rank.

    Two points of a step can be the highest: the first backward, with all activations
    and the gradient of the logits; and the optimizer, with all gradients. Between them
    activations go and gradients come, block by block, so no point between is higher.
    """
    state, have = states(numbers, case), held(numbers, case)
    activations = activation_bytes(numbers, case)
    buffers = buffer_bytes(numbers, case, have)
    workspace = workspace_bytes(numbers, case)
    fixed = numbers.profile.fixed_bytes
    early = state.gradients if numbers.profile.gradients_persist else 0
    lasting = state.weights + state.optimizer + fixed
    first_backward = lasting + early + activations + buffers + workspace
    optimizer = lasting + state.gradients + padding_bytes(numbers, case, have)
    return Memory(
        weights=state.weights,
        gradients=state.gradients,
        optimizer=state.optimizer,
        activations=activations,
        buffers=buffers,
        workspace=workspace + fixed,
        peak=largest(first_backward, optimizer),
    )


def padding_bytes(numbers: ModelNumbers, case: Case, have: Held) -> Num:
    """Return bytes by which shards are padded to a full chunk of rows."""
    per = numbers.profile.states[case.precision]
    return (have.padded - have.local) * per.weights


def buffer_bytes(numbers: ModelNumbers, case: Case, have: Held) -> Num:
    """Return what communication holds: padding and whole weights of gathered units.

    The root unit stays whole through the step, one block is in use, and some are
    gathered ahead (planner.md 3.2). Casts of whole weights count here too.
    """
    per = numbers.profile.states[case.precision]
    ahead = 1 + numbers.profile.prefetched_blocks
    gathered = (have.root + have.largest_block * ahead) * per.gather
    window = where((case.fsdp > 1) | (case.zero >= 3), gathered, 0)
    cast = where(case.fsdp == 1, have.whole * per.compute_copy, 0)
    return padding_bytes(numbers, case, have) + window + cast


def workspace_bytes(numbers: ModelNumbers, case: Case) -> Num:
    """Return the tensors that come and go at the first backward.

    Either the logits' gradients, or inside a block the gradient of its output beside
    that of its widest tensor.
    """
    most: Num = 0
    for block in numbers.blocks:
        here = layers_here(block, numbers, case)
        if block.kind == "head":
            copies = numbers.profile.head_gradient_copies
            size = copies * block.saved.fixed_by_tp * case.micro_batch
            inside = size / case.tp / case.cp
        else:
            widest = numbers.widest * case.micro_batch / case.tp / case.cp
            inside = input_bytes(block, case) + where(
                block.indexed, widest * COMPUTE_BYTES[case.precision], 0
            )
        most = largest(most, where(here > 0, inside, 0))
    return most
