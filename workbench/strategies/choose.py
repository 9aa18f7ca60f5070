"""Chooses the strategy that runs a layout, or says what cannot run yet."""

from collections.abc import Callable

from workbench.errors import LayoutError
from workbench.layout import Axis, Layout
from workbench.strategies.composed import Composed
from workbench.strategies.contract import Settings, Strategy
from workbench.strategies.data_parallel import DataParallel
from workbench.strategies.offloaded import HostSharded, Offloaded
from workbench.strategies.pipeline import check_schedule
from workbench.strategies.reference import Reference
from workbench.strategies.sharded_data_parallel import ShardedDataParallel
from workbench.strategies.streamed import StreamedNet
from workbench.strategies.whole import WholeNet
from workbench.strategies.zero import ZeroDataParallel

_RUNNABLE = (Axis.PP, Axis.DP, Axis.FSDP, Axis.CP, Axis.TP)


def build(layout: Layout, settings: Settings) -> Strategy:
    """Return the strategy that runs a layout.

    Raises:
        LayoutError: Nothing runs this layout yet.
    """
    check(layout)
    if "weights" in layout.offload and Axis.FSDP in layout.axes():
        return Offloaded(HostSharded(settings))
    if "weights" in layout.offload:
        return StreamedNet(settings)
    on_device = _on_device(layout, settings)
    return Offloaded(on_device) if layout.offload else on_device


def _on_device(layout: Layout, settings: Settings) -> WholeNet:
    """Return the strategy for the axes alone."""
    if layout.zero:
        return ZeroDataParallel(settings)
    accumulates = layout.fsdp > 1 and layout.num_microbatches > 1
    if layout.precision != "fp32" or layout.recompute != "none" or accumulates:
        return Composed(settings)
    simple: dict[tuple[Axis, ...], Callable[[Settings], WholeNet]] = {
        (): Reference,
        (Axis.DP,): DataParallel,
        (Axis.FSDP,): ShardedDataParallel,
    }
    return simple.get(layout.axes(), Composed)(settings)


def check(layout: Layout) -> None:
    """Refuse a layout that can be planned but not run yet.

    Raises:
        LayoutError: Naming what cannot run.
    """
    missing = [str(axis) for axis in layout.axes() if axis not in _RUNNABLE]
    if missing:
        raise LayoutError(
            f"a layout with {', '.join(missing)} can be planned but not run yet",
            hint=f"axes that run: {', '.join(_RUNNABLE)}",
        )
    for name, value, known in (
        ("precision", layout.precision, ("fp32", "bf16")),
        ("recompute", layout.recompute, ("none", "full")),
        ("zero", layout.zero, (0, 1, 2)),
    ):
        if value not in known:
            raise LayoutError(
                f"{name}={value!r} can be planned but not run yet",
                hint=f"run it with {name}={known[0]!r}",
            )
    if layout.pp > 1:
        check_schedule(
            layout.schedule,
            num_stages=layout.pp,
            num_microbatches=layout.num_microbatches,
            chunks=layout.chunks,
        )
    _check_order(layout)
    _check_zero(layout)
    if "weights" in layout.offload:
        _check_weights_away(layout)


def _check_order(layout: Layout) -> None:
    """FSDP2 wants replicas outside shards."""
    axes = layout.axes()
    if (
        Axis.DP in axes
        and Axis.FSDP in axes
        and axes.index(Axis.DP) > axes.index(Axis.FSDP)
    ):
        raise LayoutError(
            "dp inside fsdp can be planned but not run",
            hint="name dp before fsdp in the layout's order",
        )


def _check_zero(layout: Layout) -> None:
    """ZeRO 1 and 2 run over dp alone."""
    others = layout.precision != "fp32" or layout.recompute != "none" or layout.offload
    if layout.zero and (layout.axes() != (Axis.DP,) or others):
        raise LayoutError(
            f"zero={layout.zero} runs with dp alone in fp32, without recompute or "
            "offload, yet",
            hint="use fsdp, which cuts optimizer state and gradients too",
        )


def _check_weights_away(layout: Layout) -> None:
    """Weights off the device stream (alone, dp), or are slices at rest (fsdp)."""
    if layout.precision != "fp32" or layout.axes() not in (
        (),
        (Axis.DP,),
        (Axis.FSDP,),
    ):
        raise LayoutError(
            f"weights leave the device with dp alone or fsdp alone in fp32, not with "
            f"{layout} in {layout.precision}",
            hint="offload activations and optimizer only",
        )
    if layout.fsdp > 1:
        if layout.num_microbatches > 1 or layout.recompute != "none":
            raise LayoutError(
                f"weights of fsdp off the device with num_microbatches="
                f"{layout.num_microbatches}, recompute={layout.recompute!r} cannot run",
                hint="use one micro-batch and recompute='none'",
            )
    elif set(layout.offload) != {"weights", "activations", "optimizer"}:
        raise LayoutError(
            f"offload={list(layout.offload)} keeps on the device what streaming cannot",
            hint='offload=("weights", "activations", "optimizer"), or leave weights out',
        )
