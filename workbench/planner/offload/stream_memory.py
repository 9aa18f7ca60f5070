"""What a streamed net holds on device and host, from the model's numbers (S07)."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.model import Block, ModelSpec
from workbench.model.spec import Parameter, Saved
from workbench.planner.offload.stream import NUM_BUFFERS
from workbench.units import DTYPE_BYTES

_FLOAT = DTYPE_BYTES["float32"]

#: Tensors of a flat buffer begin at a multiple, as in `offload.tiers`.
_ALIGNMENT = 64

#: Sets of all micro-batches' boundaries at a unit's backward: its inputs, the next
#: unit's that are coming back, and the gradients on their way down.
_BOUNDARIES = 3

#: Copies of the logits at the first backward, beside what the loss saved.
_LOGIT_COPIES = 2


@dataclass(frozen=True, kw_only=True)
class StreamedBytes:
    """Memory of a rank that streams its net in float32 with Adam.

    Args:
        device: Most bytes at once, all that computes included; the same for any depth.
        host: Weights, gradients, states and kept inputs of one copy of the net.
    """

    device: int
    host: int


def streamed_bytes(
    model: ModelSpec, *, num_samples: int, num_microbatches: int
) -> StreamedBytes:
    """Return what a step holds.

    Device: two buffers of the largest unit, two units' gradients, what the largest unit
    saves for one micro-batch with its widest gradient, and three sets of boundaries.
    Host: four float32 copies of the parameters, and each unit's input but the last's.

    Args:
        model: What trains.
        num_samples: Of this rank's share of a step.
        num_microbatches: Parts that it is cut into.
    """
    micro = -(-num_samples // num_microbatches)
    units = _units(model)
    weights = max(_flat_bytes(unit) for unit in units)
    boundary = max(
        block.boundary_elements for block in model.blocks if block.kind != "head"
    )
    flow = boundary * num_samples * _FLOAT
    num_units = sum(block.repeat for block in model.blocks if block.indexed) + 2
    own = sum(_flat_bytes(unit, own=True) for unit in units)
    return StreamedBytes(
        device=2 * NUM_BUFFERS * weights
        + max(_computing_bytes(unit, micro) for unit in units)
        + _BOUNDARIES * flow,
        host=4 * own + (num_units - 2) * flow + _first_input_bytes(model, num_samples),
    )


def _units(model: ModelSpec) -> list[tuple[Block, ...]]:
    """Return the blocks of each unit: layers are units, and so is what follows them."""
    units: list[tuple[Block, ...]] = []
    last: list[Block] = []
    for block in model.blocks:
        if block.indexed:
            units += [(block,)] * block.repeat
        elif units and any(b.indexed for unit in units for b in unit):
            last.append(block)
        else:
            units.append((block,))
    return [*units, tuple(last)]


def _flat_bytes(unit: Sequence[Block], *, own: bool = False) -> int:
    return sum(
        _aligned(parameter)
        for block in unit
        for parameter in block.parameters
        if not (own and parameter.tied_to is not None)
    )


def _aligned(parameter: Parameter) -> int:
    num_bytes = parameter.num_elements * _FLOAT
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _computing_bytes(unit: Sequence[Block], micro: int) -> int:
    """Return what a unit saves for one micro-batch, and its widest gradient."""
    saved = [(block, _saved_bytes(s, micro)) for block in unit for s in block.saved]
    widest = max(
        num_bytes * (_LOGIT_COPIES if block.kind == "head" else 1)
        for block, num_bytes in saved
    )
    return sum(num_bytes for _, num_bytes in saved) + widest


def _saved_bytes(saved: Saved, micro: int) -> int:
    dtype = "float32" if saved.dtype == "compute" else saved.dtype
    times = micro if saved.per_sample else 1
    return saved.num_elements * DTYPE_BYTES[dtype] * times


def _first_input_bytes(model: ModelSpec, num_samples: int) -> int:
    """Return the bytes of the net's own input, kept like any other."""
    return sum(_saved_bytes(s, num_samples) for s in model.blocks[0].saved)
