"""Whether a layout suits a model and a cluster: relations that fail, and ways out."""

from collections.abc import Mapping

from workbench.errors import LayoutError
from workbench.hardware import ClusterSpec
from workbench.layout.layout import Layout
from workbench.model import ModelSpec


def check_ranks(layout: Layout, num_devices: int) -> None:
    """Refuse a layout that needs more ranks than there are devices.

    Raises:
        LayoutError: With both numbers and a degree that would work.
    """
    if layout.num_ranks <= num_devices:
        return
    axes = layout.axes()
    largest = max(axes, key=layout.degree)
    others = layout.num_ranks // layout.degree(largest)
    hint = (
        f"try {largest}={num_devices // others}"
        if num_devices // others >= 1
        else f"lower {' or '.join(axes)}"
    )
    raise LayoutError(
        f"{layout} needs {layout.num_ranks} ranks, there are {num_devices} devices",
        hint=hint,
    )


def check_hardware(layout: Layout, hardware: ClusterSpec) -> None:
    """Refuse a layout with more ranks than the cluster has devices.

    Raises:
        LayoutError: See `check_ranks`.
    """
    check_ranks(layout, hardware.num_devices)


def check_batch(layout: Layout, global_batch: int) -> None:
    """Refuse a global batch that data ranks and micro-batches do not divide.

    Raises:
        LayoutError: With a global batch that would work.
    """
    parts = layout.num_data_ranks * layout.num_microbatches
    if global_batch >= 1 and global_batch % parts == 0:
        return
    raise LayoutError(
        f"global_batch {global_batch} does not divide by {layout.num_data_ranks} data "
        f"ranks x {layout.num_microbatches} micro-batches = {parts}",
        hint=f"try global_batch={max(1, -(-global_batch // parts)) * parts}",
    )


def check_model(layout: Layout, model: ModelSpec) -> None:
    """Refuse degrees that heads, layers, experts or tokens do not divide by.

    Raises:
        LayoutError: With the relation that failed and a degree that would work.
    """
    numbers = dict(model.hyper)
    _divides(numbers, "num_heads", "tp", layout.tp)
    _divides(numbers, "num_experts", "ep", layout.ep)
    _divides(
        {"tokens_per_sample": model.tokens_per_sample},
        "tokens_per_sample",
        "cp",
        layout.cp,
    )
    if layout.sp:
        tokens = {"tokens_per_sample": model.tokens_per_sample // layout.cp}
        _divides(tokens, "tokens_per_sample", "tp", layout.tp)
    if layout.context == "ulysses" and layout.cp > 1:
        _divides(numbers, "num_kv_heads", "cp", layout.cp)
    layers = sum(block.repeat for block in model.blocks if block.indexed)
    stages = layout.pp * layout.chunks
    layers += 2 * layout.ends_as_layers
    if layout.pp > 1 and stages > layers:
        raise LayoutError(
            f"pp {layout.pp} x chunks {layout.chunks} = {stages} stages, the model has "
            f"{layers} layers",
            hint=f"try pp={max(1, layers // layout.chunks)}",
        )


def _divides(numbers: Mapping[str, object], name: str, axis: str, degree: int) -> None:
    """Refuse a degree that a number of the model does not divide by."""
    number = numbers.get(name)
    if degree == 1 or (isinstance(number, int) and number % degree == 0):
        return
    if not isinstance(number, int):
        raise LayoutError(
            f"{axis} {degree} needs a model with {name}, this one has none",
            hint=f"set {axis}=1",
        )
    works = max(d for d in range(1, degree + 1) if number % d == 0)
    raise LayoutError(
        f"{name} {number} does not divide by {axis} {degree}",
        hint=f"try {axis}={works}",
    )
