"""Memory of one rank by category, and the peak of a step.

A step's heap is highest at one of a few moments, each written down as a `Moment`: when
the loss's gradient meets all kept activations, when the head or the last layers make
their gradients, or when the optimizer holds every gradient. Between them activations
go and gradients come, layer by layer, so no moment in between is higher.
"""

from dataclasses import dataclass

from workbench.planner.activations import (
    COMPUTE_BYTES,
    activation_bytes,
    input_bytes,
    kept_bytes,
)
from workbench.planner.case import Case
from workbench.planner.numbers import BlockNumbers, ModelNumbers, layers_here
from workbench.planner.numeric import Num, largest, smallest, where
from workbench.planner.states import Held, States, elements_of, held, states


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of the judged rank: each category's most, and the highest moment's sum."""

    weights: Num
    gradients: Num
    optimizer: Num
    activations: Num
    buffers: Num
    workspace: Num
    peak: Num


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Bytes alive at one moment beside weights and optimizer."""

    gradients: Num
    activations: Num
    buffers: Num
    workspace: Num

    @property
    def total(self) -> Num:
        """All of them."""
        return self.gradients + self.activations + self.buffers + self.workspace


def memory(numbers: ModelNumbers, case: Case) -> Memory:
    """Judge one rank."""
    state, have = states(numbers, case), held(numbers, case)
    moments = step_moments(numbers, case, state, have)
    fixed = numbers.profile.fixed_bytes
    return Memory(
        weights=state.weights,
        gradients=state.gradients,
        optimizer=state.optimizer,
        activations=largest(*(m.activations for m in moments)),
        buffers=largest(*(m.buffers for m in moments)),
        workspace=largest(*(m.workspace for m in moments)) + fixed,
        peak=state.weights
        + state.optimizer
        + fixed
        + largest(*(m.total for m in moments)),
    )


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Bytes that the moments are made of."""

    layers: Num
    layer_kept: Num
    layer_inside: Num
    layer_gradient: Num
    block: Num
    root: Num
    head_saved: Num
    head_gradient: Num
    padding: Num
    cast: Num


def step_moments(
    numbers: ModelNumbers, case: Case, state: States, have: Held
) -> tuple[Moment, ...]:
    """Return the moments of a step that can be its highest."""
    size = _sizes(numbers, case, have)
    kept = activation_bytes(numbers, case)
    early = _early_gradients(numbers, case, state, have)
    standing = size.padding + size.cast + _window(case, size.root)
    copies = numbers.profile.head_gradient_copies
    loss = Moment(
        gradients=early,
        activations=kept,
        buffers=standing,
        workspace=copies * size.head_saved,
    )
    head = Moment(
        gradients=early,
        activations=kept,
        buffers=standing,
        workspace=size.head_gradient,
    )
    last = _layer_moment(numbers, case, size, loss, 0)
    before_last = _layer_moment(numbers, case, size, loss, 1)
    update = Moment(
        gradients=state.gradients,
        activations=0,
        buffers=size.padding + _window(case, 2 * size.root + size.block),
        workspace=0,
    )
    return loss, head, last, before_last, update


def _early_gradients(
    numbers: ModelNumbers, case: Case, state: States, have: Held
) -> Num:
    """Return gradient bytes that are there before the last micro-batch's backward."""
    per = numbers.profile.states[case.precision].gradients
    if not numbers.profile.reduces_each_microbatch:
        # Summed in place as whole gradients until the last micro-batch scatters them.
        whole = where(case.num_microbatches > 1, have.whole * per, 0)
    else:
        whole = where(case.num_microbatches > 1, state.gradients, 0)
    flat = state.gradients if numbers.profile.gradients_persist else whole
    return where(case.fsdp > 1, whole, flat)


def _layer_moment(
    numbers: ModelNumbers, case: Case, size: _Sizes, loss: Moment, done: int
) -> Moment:
    """Return the moment when the layer with `done` layers behind it makes gradients.

    Sharded, that layer's weights and gradients are whole, the layer before is gathered
    ahead, the scatter of the layer behind still holds its input, and of the root the
    head's gradient is there.
    """
    here = where(size.layers > done, 1, 0)
    ahead = numbers.profile.prefetched_blocks * where(size.layers > done + 1, 1, 0)
    fresh = where(case.num_microbatches > 1, 0, 1)
    if numbers.profile.reduces_each_microbatch:
        fresh = 1
    blocks = size.block * (1 + fresh + ahead + done)
    window = size.root + fresh * size.head_gradient + blocks
    # Sharded gradients of layers that are done, half of a window's worth at most.
    local = smallest(done * size.block / case.fsdp, size.block)
    inside = size.layer_inside + where(case.fsdp > 1, 0, size.layer_gradient)
    return Moment(
        gradients=loss.gradients + where(case.fsdp > 1, local, 0),
        activations=(loss.activations - size.head_saved - done * size.layer_kept)
        * here,
        buffers=(size.padding + size.cast + _window(case, window)) * here,
        workspace=inside * here,
    )


def _window(case: Case, gathered: Num) -> Num:
    """Return whole weights and gradients that only a sharded rank holds for a while."""
    return where((case.fsdp > 1) | (case.zero >= 3), gathered, 0)


def _sizes(numbers: ModelNumbers, case: Case, have: Held) -> _Sizes:
    per = numbers.profile.states[case.precision]
    kept = inside = gradient = layers = head_saved = head_gradient = 0
    for block in numbers.blocks:
        here = layers_here(block, numbers, case)
        if block.indexed:
            layers = layers + here
            is_here = where(here > 0, 1, 0)
            kept = largest(kept, kept_bytes(numbers, block, case) * is_here)
            inside = largest(inside, _inside_bytes(numbers, block, case) * is_here)
            widest = _largest_tensor(block, case) * per.gradients
            gradient = largest(gradient, widest * is_here)
        elif block.kind == "head":
            cut = case.tp if numbers.profile.logits_cut else 1
            logits = block.saved.fixed_by_tp * case.micro_batch / cut / case.cp
            head_saved = here * logits
            weights = _head_elements(numbers, case) * per.gradients
            head_gradient = here * weights
    return _Sizes(
        layers=layers,
        layer_kept=kept,
        layer_inside=inside,
        layer_gradient=gradient,
        block=have.largest_block * per.gather,
        root=have.root * per.gather,
        head_saved=head_saved,
        head_gradient=head_gradient,
        padding=(have.padded - have.local) * per.weights,
        cast=where(case.fsdp == 1, have.whole * per.compute_copy, 0),
    )


def _inside_bytes(numbers: ModelNumbers, block: BlockNumbers, case: Case) -> Num:
    """Return a layer's transient: the gradients of its output and widest tensor."""
    widest = numbers.widest * case.micro_batch / case.tp / case.cp
    return input_bytes(block, case) + widest * COMPUTE_BYTES[case.precision]


def _largest_tensor(block: BlockNumbers, case: Case) -> Num:
    whole = (elements_of((parameter,), case)[0] for parameter in block.parameters)
    return largest(*whole)


def _head_elements(numbers: ModelNumbers, case: Case) -> Num:
    """Return elements of the output matrix on this rank, tied or not."""
    head = next((b for b in numbers.blocks if b.kind == "head"), None)
    if head is None:
        return 0
    matrix = head.matrix_flops // (2 * numbers.tokens)
    return -(-matrix // case.tp)


def reserved_bytes(numbers: ModelNumbers, peak: Num) -> Num:
    """Return what a device must hold for a peak of tensors.

    The allocator loses some between its blocks, and context and communication buffers
    lie beside it.
    """
    profile = numbers.profile
    return peak * (1 + profile.fragmentation) + profile.reserve_bytes
