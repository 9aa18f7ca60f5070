"""A person's own module and loss over a layout, with a few lines added to their script.

What runs: `dp` with any one of the rest; `fsdp` (FSDP2) alone or with the spatial axes;
`sx, sy, sz` (samples cut in space); `pp` (parameters placed on ranks, micro-batches);
`tp` by a rule table. Optimizer, schedule and data stay the person's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils._pytree import tree_map_only

from workbench.collectives.ranks import Ranks
from workbench.errors import LayoutError
from workbench.layout import Axis, Layout
from workbench.strategies import spatial, tensor
from workbench.strategies.movement import balanced_sizes
from workbench.strategies.movement.boxes import spans
from workbench.strategies.placed import Placed, balance, place

#: Mean loss of some samples, from inputs and targets.
MeanLoss = Callable[[Any, Any], torch.Tensor]

_DATA = (Axis.DP, Axis.FSDP)
_SPACE = frozenset({Axis.SX, Axis.SY, Axis.SZ})


def parallelize(
    net: nn.Module,
    ranks: Ranks,
    *,
    example: tuple[Any, ...] = (),
    owners: Mapping[str, int] | None = None,
    rules: Sequence[tensor.Rule] = (),
    targets_first: int | None = None,
) -> "Parallel":
    """Prepare any module, in place, for the layout of these ranks.

    Args:
        net: With equal values on all ranks. Its code stays as it is.
        ranks: This rank's view, with the layout.
        example: Example inputs, for `pp`: parts of equal forward cost are found with
            them on the meta device.
        owners: For `pp`, which module lies on which stage; found by `balance` if None.
        rules: For `tp`, what is split how (see `tensor.Rule`).
        targets_first: For the spatial axes, the first dim of the targets that they cut:
            1 for a class per voxel, 2 for targets like features, None for none.

    Raises:
        LayoutError: Axes that do not run together for such a module, or an argument
            that an axis needs and that is missing.

    Example:
        >>> parallel = parallelize(net, ranks, example=(x,))  # doctest: +SKIP
        >>> optimizer = torch.optim.AdamW(parallel.parameters())  # doctest: +SKIP
        >>> def mean_loss(x, y):  # doctest: +SKIP
        ...     return criterion(net(x), y)
        >>> parallel.step(mean_loss, x, y)  # doctest: +SKIP
        >>> optimizer.step()  # doctest: +SKIP
    """
    layout = ranks.layout
    _check(layout, rules)
    placed = None
    if layout.pp > 1:
        if owners is None:
            owners = balance(net, example, num_parts=layout.pp)
        placed = place(
            net, owners, group=ranks.mesh.get_group("pp"), device=ranks.device
        )
    if layout.tp > 1:
        tensor.split(net, rules, ranks.mesh["tp"], sequence=False)
    if layout.fsdp > 1:
        for unit in _units(net):
            fully_shard(unit, mesh=ranks.mesh["fsdp"])
        fully_shard(net, mesh=ranks.mesh["fsdp"])
    return Parallel(net, ranks, placed=placed, targets_first=targets_first)


def _check(layout: Layout, rules: Sequence[tensor.Rule]) -> None:
    axes = set(layout.axes())
    kinds = [
        kind
        for kind in ({Axis.FSDP, *_SPACE}, {Axis.PP}, {Axis.TP}, {Axis.CP}, {Axis.EP})
        if axes & kind
    ]
    if axes & {Axis.CP, Axis.EP} or len(kinds) > 1:
        raise LayoutError(
            f"a module of one's own cannot be run over {layout}",
            hint="dp with one of: fsdp and sx, sy, sz; pp; tp",
        )
    if layout.tp > 1 and not rules:
        raise LayoutError(
            f"tp {layout.tp} of a module of one's own needs rules",
            hint='rules=[Rule(pattern="*.up", placing="column"), ...]',
        )


def _units(net: nn.Module) -> Iterator[nn.Module]:
    """Give what FSDP2 gathers in one go: children, and the elements of lists."""
    for child in net.children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            yield from _units(child)
        elif next(child.parameters(), None) is not None:
            yield child


class Parallel:
    """A module over a layout; made by `parallelize`."""

    def __init__(
        self,
        net: nn.Module,
        ranks: Ranks,
        *,
        placed: Placed | None,
        targets_first: int | None,
    ) -> None:
        self._net = net
        self._ranks = ranks
        self._placed = placed
        self._targets_first = targets_first

    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Return what this rank's optimizer shall update."""
        if self._placed is not None:
            return tuple(self._placed.parameters())
        return tuple(self._net.parameters())

    def step(self, mean_loss: MeanLoss, inputs: Any, targets: Any) -> float:
        """Run forward and backward of a batch that all ranks hold.

        Each rank takes its share; afterwards gradients are those of the mean loss over
        the whole batch, and so is the loss returned, on every rank. Under `dp` a batch
        norm sees its replica's samples, as torch's own does.

        Args:
            mean_loss: The mean loss of the samples it is given.
            inputs: Tensors with samples in dim 0, in any nesting.
            targets: The same.

        Raises:
            LayoutError: Fewer samples than shares.
        """
        num_samples = _num_samples(inputs)
        share, weight = self._share(num_samples)
        inputs, targets = (_take(given, share) for given in (inputs, targets))
        loss = self._forward_backward(mean_loss, inputs, targets, share, weight)
        self._average()
        return self._mean(loss)

    def _share(self, num_samples: int) -> tuple[tuple[int, int], float]:
        """Return this rank's samples, and what its mean counts for among all shares."""
        layout, place = self._ranks.layout, 0
        coordinates = layout.coordinates(self._ranks.rank)
        for axis in _DATA:
            place = place * layout.degree(axis) + coordinates.get(axis, 0)
        shares = layout.dp * layout.fsdp
        if num_samples < shares * layout.num_microbatches:
            raise LayoutError(
                f"{num_samples} samples for {shares} data ranks of "
                f"{layout.num_microbatches} micro-batches",
                hint=f"a batch of at least {shares * layout.num_microbatches}",
            )
        share = spans(balanced_sizes(num_samples, shares))[place]
        return share, (share[1] - share[0]) * shares / num_samples

    def _forward_backward(
        self,
        mean_loss: MeanLoss,
        inputs: Any,
        targets: Any,
        share: tuple[int, int],
        weight: float,
    ) -> torch.Tensor:
        """Accumulate gradients over the micro-batches; return this share's loss."""
        size = share[1] - share[0]
        losses = []
        for span in spans(balanced_sizes(size, self._ranks.layout.num_microbatches)):
            x, y = self._cut(_take(inputs, span), _take(targets, span))
            part = weight * (span[1] - span[0]) / size
            if self._placed is None:
                loss = mean_loss(x, y) * part
                loss.backward()
                losses.append(loss.detach())
            else:
                losses.append(self._placed.run(_bound(mean_loss, x, y, part)))
        if self._placed is not None:
            told = [self._placed.value(loss) for loss in losses]
            self._placed.backward(losses)
            losses = told
        return torch.stack(losses).sum()

    def _cut(self, x: Any, y: Any) -> tuple[Any, Any]:
        mesh = self._ranks.mesh
        if not _SPACE & set(self._ranks.layout.axes()):
            return x, y
        x = tree_map_only(torch.Tensor, lambda t: spatial.cut(t, mesh), x)
        first = self._targets_first
        if first is not None:
            y = tree_map_only(
                torch.Tensor, lambda t: spatial.cut(t, mesh, first=first), y
            )
        return x, y

    @property
    def _groups(self) -> list[dist.ProcessGroup]:
        """Groups over which this rank averages; FSDP2 averages over its own."""
        groups = list(spatial.spatial_groups(self._ranks.mesh))
        if self._ranks.layout.dp > 1:
            groups.append(self._ranks.mesh.get_group("dp"))
        return groups

    def _average(self) -> None:
        spatial.average_gradients(self.parameters(), self._groups)

    def _mean(self, loss: torch.Tensor) -> float:
        loss = loss.clone()
        layout = self._ranks.layout
        for axis in _DATA:
            if layout.degree(axis) > 1:
                dist.all_reduce(loss, group=self._ranks.mesh.get_group(str(axis)))
        return loss.item() / (layout.dp * layout.fsdp)


def _bound(
    mean_loss: MeanLoss, x: Any, y: Any, part: float
) -> Callable[[], torch.Tensor]:
    return lambda: mean_loss(x, y) * part


def _num_samples(batch: Any) -> int:
    sizes: list[int] = []
    tree_map_only(torch.Tensor, lambda t: sizes.append(t.shape[0]), batch)
    if not sizes:
        raise LayoutError("a batch without tensors", hint="give samples in dim 0")
    return sizes[0]


def _take(batch: Any, span: tuple[int, int]) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t[span[0] : span[1]], batch)
