"""Chooses the strategy that runs a layout, or says what cannot run yet."""

from workbench.errors import LayoutError
from workbench.layout import Axis, Layout
from workbench.strategies.contract import Settings, Strategy
from workbench.strategies.data_parallel import DataParallel
from workbench.strategies.reference import Reference
from workbench.strategies.sharded_data_parallel import ShardedDataParallel


def build(layout: Layout, settings: Settings) -> Strategy:
    """Return the strategy that runs a layout.

    Raises:
        LayoutError: Nothing runs this layout yet.
    """
    check(layout)
    axes = layout.axes()
    if Axis.FSDP in axes:
        return ShardedDataParallel(settings)
    if Axis.DP in axes:
        return DataParallel(settings)
    return Reference(settings)


def check(layout: Layout) -> None:
    """Refuse a layout that can be planned but not run yet.

    Raises:
        LayoutError: Naming what cannot run.
    """
    runs = ((), (Axis.DP,), (Axis.FSDP,))
    if layout.axes() not in runs:
        raise LayoutError(
            f"a layout with the axes {', '.join(layout.axes())} can be planned but not "
            "run yet",
            hint="dp alone and fsdp alone can run",
        )
    for name, value, only in (
        ("precision", layout.precision, "fp32"),
        ("recompute", layout.recompute, "none"),
        ("zero", layout.zero, 0),
        ("offload", layout.offload, ()),
    ):
        if value != only:
            raise LayoutError(
                f"{name}={value!r} can be planned but not run yet",
                hint=f"run it with {name}={only!r}",
            )
