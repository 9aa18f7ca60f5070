"""Every axis at once: stages, cut matrices, cut sequences, shards and replicas.

The order in which a net is made is the order of the axes from the outside: a rank keeps
its pipeline stages, fills one layer after the other with values, cuts its matrices over
tp, and slices it over fsdp. Gradients become sums over dp and cp, per unit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional

from workbench.collectives.ranks import Ranks
from workbench.errors import LayoutError
from workbench.layout import Axis, Layout
from workbench.strategies import context, movement, nets, tensor
from workbench.strategies.contract import Settings
from workbench.strategies.data_parallel import Bucket
from workbench.strategies.layers import GptAttention, Layer, LlamaAttention
from workbench.strategies.nets import Decoder
from workbench.strategies.pieces import local
from workbench.strategies.pipeline import (
    PipelineRun,
    Stage,
    actions,
    cut_stages,
    held_parts,
)
from workbench.strategies.precision import compute_in
from workbench.strategies.sharding import Shards
from workbench.strategies.tensor.rules import apply
from workbench.strategies.whole import Batch, Clock, WholeNet, sum_of_squares

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Composed(WholeNet):
    """A step over any of pp, dp, fsdp, cp and tp."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._edges: tensor.Edges | None = None
        self._cut: context.TokenCut | None = None
        self._shards: Shards | None = None
        self._buckets: list[Bucket] = []

    def prepare(self, module: nn.Module, layout: Layout, ranks: Ranks) -> nn.Module:
        """Give the net its values, cut it, and make the optimizer.

        Raises:
            LayoutError: Messages between ranks whose order NCCL could not bear.
        """
        _check_messages(layout, ranks.device)
        self.layout = layout
        return super().prepare(module, layout, ranks)

    @property
    def gradient_copies(self) -> int:
        """Ranks that hold the same gradient, where tp cuts it."""
        return self.layout.dp * self.layout.cp

    # Making the net -----------------------------------------------------------------

    def wrap(self, net: Decoder) -> nn.Module:
        """Keep this rank's stages and cut what they hold."""
        layout = self.layout
        self._num_layers = len(net.layers)
        self._vocab_size, self._hidden = net.head.weight.shape
        self.stages = cut_stages(
            net,
            rank=self._coordinate(Axis.PP),
            num_ranks=layout.pp,
            chunks=layout.chunks,
            ends_as_layers=layout.ends_as_layers,
        )
        if layout.tp > 1:
            self._edges = tensor.Edges(self._mesh(Axis.TP), sequence=layout.sp)
        if layout.fsdp > 1:
            self._shards = Shards(self.ranks.mesh, layout)
        for stage in self.stages:
            self._make_layers(stage)
            self._make_ends(stage, tied=net.tied)
        whole = held_parts(self.stages)
        if self._shards is None and layout.precision != "fp32":
            compute_in(whole, _DTYPES[layout.precision])
        self._partial = tensor.partial_parameters(whole)
        if self._shards is None and self._summed_axes:
            self._buckets = [
                Bucket(unit, self.ranks.mesh, self._summed_axes, self.num_microbatches)
                for unit in stage_units(self.stages)
            ]
        return whole

    def _make_layers(self, stage: Stage) -> None:
        for index, layer in stage.layers.items():
            assert isinstance(layer, Layer)
            prefix = f"layers.{index}."
            self._fill(layer, prefix)
            layer.recompute = self.layout.recompute == "full"
            if self.layout.cp > 1:
                assert isinstance(layer.attn, GptAttention | LlamaAttention)
                layer.attn.attend = self._attention()
            if self._edges is not None:
                apply(layer, tensor.DECODER_RULES, self._edges, prefix=prefix)
            if self._shards is not None:
                self._shards.cut_layer(layer)

    def _make_ends(self, stage: Stage, *, tied: bool) -> None:
        ends = nn.Module()
        for name in ("embedding", "norm", "head"):
            part = getattr(stage, name)
            if part is not None:
                self._fill(part, f"{name}.")
                ends.add_module(name, part)
        if tied and stage.embedding is not None and stage.head is not None:
            stage.head.weight = stage.embedding.tokens.weight
        if self._edges is not None:
            apply(ends, tensor.DECODER_RULES, self._edges)
        for name, part in ends.named_children():
            setattr(stage, name, part)
        if self._shards is not None:
            self._shards.cut_root(stage)

    def _fill(self, part: nn.Module, prefix: str) -> None:
        nets.fill(part, prefix, self.ranks.device, self._num_layers, self.settings.seed)

    def _attention(self) -> Callable[..., torch.Tensor]:
        attend = {
            "ring": context.ring_attention,
            "all_gather": context.gathered_attention,
            "ulysses": context.ulysses_attention,
        }[self.layout.context]

        def attention(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
        ) -> torch.Tensor:
            assert self._cut is not None, "tokens are dealt before the forward"
            return attend(q, k, v, cut=self._cut, group=self._mesh(Axis.CP).get_group())

        return attention

    # A step -------------------------------------------------------------------------

    def _forward_backward(self, batch: Batch, clock: Clock) -> torch.Tensor:
        if self.layout.pp == 1:
            return super()._forward_backward(self._deal(batch), clock)
        order = actions(
            self.layout.schedule,
            stage=self._coordinate(Axis.PP),
            num_stages=self.layout.pp,
            num_microbatches=self.num_microbatches,
            chunks=self.layout.chunks,
        )
        total = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        inputs, targets = self._parts(self._deal(batch))

        def loss(logits: torch.Tensor, microbatch: int) -> torch.Tensor:
            loss_sum = self._loss_of(logits, targets[microbatch])
            total.add_(loss_sum.detach())
            return loss_sum / self.settings.nominal_tokens

        self._pipeline(inputs, loss, seconds=clock.seconds).run(order)
        clock.restart()
        return total

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Reduce sharded gradients in the last micro-batch only."""
        if self._shards is not None:
            self._shards.reduce(last=last)
        return nullcontext()

    def _loss_sum(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.stages[0](inputs)
        return self._loss_of(logits, targets)

    def _loss_of(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits_Nv, targets_N = logits.float().flatten(0, 1), targets.flatten()
        if self._edges is None:
            return functional.cross_entropy(logits_Nv, targets_N, reduction="sum")
        return tensor.split_cross_entropy(
            logits_Nv, targets_N, vocab_size=self._vocab_size, group=self._edges.group
        ).sum()

    def finish_gradients(self) -> None:
        """Make every gradient the sum over all that have a part in it."""
        for bucket in self._buckets:
            bucket.finish()
        if self._shards is not None:
            self._shards.finish(self.stages)
        if self._edges is not None and self._partial:
            tensor.sum_partial_gradients(self._partial, self._edges.group)

    def gradient_squares(self) -> torch.Tensor:
        """Return this rank's share of the squared norm of all gradients."""
        cut: list[torch.Tensor] = []
        whole: list[torch.Tensor] = []
        for parameter in self.net.parameters():
            if parameter.grad is None:
                continue
            held = cut if self._is_cut_by_tp(parameter) else whole
            held.append(local(parameter.grad))
        squares = sum_of_squares(cut) + sum_of_squares(whole) / self.layout.tp
        return squares.to(self.ranks.device) / self.gradient_copies

    def _is_cut_by_tp(self, parameter: nn.Parameter) -> bool:
        if self.layout.tp == 1:
            return True
        assert isinstance(parameter, DTensor)
        place = (parameter.device_mesh.mesh_dim_names or ()).index("tp")
        return isinstance(parameter.placements[place], Shard)

    def contribution(
        self, loss_sum: torch.Tensor, targets: torch.Tensor
    ) -> list[float]:
        """Return this rank's share of loss sum and tokens, so that all shares add up."""
        if not self._has_head:
            return [0.0, 0.0]
        tokens = targets.numel()
        if self._cut is not None:
            tokens = targets.shape[0] * self._cut.size(self._coordinate(Axis.CP))
        return [loss_sum.item() / self.layout.tp, tokens / self.layout.tp]

    def zero_gradients(self) -> None:
        """Make ready for the next step's backward."""
        if self._buckets:
            for bucket in self._buckets:
                bucket.empty()
        else:
            super().zero_gradients()

    def reset(self) -> None:
        """Slice every layer again and drop the gradients of a broken step."""
        if self._shards is not None:
            self._shards.let_go()
        super().reset()

    # Beside the step ----------------------------------------------------------------

    def _evaluated(self, batch: Batch) -> torch.Tensor:
        inputs, targets = self._deal(batch)
        if self.layout.pp == 1:
            loss_sum = self._loss_sum(inputs, targets)
        else:
            losses = self._forward_only(inputs, targets)
            loss_sum = torch.stack(losses).sum() if losses else torch.zeros(())
        if self._shards is not None:
            self._shards.let_go()
        return loss_sum.double()

    def _forward_only(
        self, inputs: torch.Tensor, targets: torch.Tensor | None
    ) -> list[torch.Tensor]:
        parts = self._parts((inputs, inputs if targets is None else targets))

        def last(logits: torch.Tensor, microbatch: int) -> torch.Tensor:
            if targets is None:
                return logits
            return self._loss_of(logits, parts[1][microbatch])

        forwards = [
            action
            for action in actions(
                "interleaved" if self.layout.chunks > 1 else "gpipe",
                stage=self._coordinate(Axis.PP),
                num_stages=self.layout.pp,
                num_microbatches=self.num_microbatches,
                chunks=self.layout.chunks,
            )
            if action.kind == "forward"
        ]
        return self._pipeline(parts[0], last, seconds={}).run(forwards)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, T, V] of tokens [B, T]; all ranks must call this."""
        tokens = tokens.to(self.ranks.device)
        with torch.no_grad():
            inputs, _ = self._deal((tokens, tokens))
            if self.layout.pp == 1:
                result = self.stages[0](inputs)
            else:
                result = self._from_last_stage(self._forward_only(inputs, None), inputs)
            result = self._made_whole(result.float())
            if self._shards is not None:
                self._shards.let_go()
        return result

    def _from_last_stage(
        self, parts: Sequence[torch.Tensor], inputs: torch.Tensor
    ) -> torch.Tensor:
        """Give every stage the last one's logits."""
        group = self._mesh(Axis.PP).get_group()
        width = movement.balanced_sizes(self._vocab_size, 1)[0]
        if self._edges is not None:
            width = -(-self._vocab_size // self.layout.tp)
            first = self._coordinate(Axis.TP) * width
            width = max(0, min(width, self._vocab_size - first))
        logits = torch.cat([part.float() for part in parts]) if parts else None
        if logits is None:
            logits = torch.empty((*inputs.shape, width), device=self.ranks.device)
        dist.broadcast(logits, group=group, group_src=self.layout.pp - 1)
        return logits

    def _made_whole(self, logits: torch.Tensor) -> torch.Tensor:
        if self._edges is not None:
            logits = tensor.whole_logits(
                logits, vocab_size=self._vocab_size, group=self._edges.group
            )
        if self._cut is None:
            return logits
        group = self._mesh(Axis.CP).get_group()
        gathered = movement.all_gather(
            logits, dim=1, sizes=self._cut.sizes, group=group
        )
        positions = torch.cat(
            [self._cut.positions(rank) for rank in range(self.layout.cp)]
        )
        return gathered[:, positions.argsort()]

    # Shapes -------------------------------------------------------------------------

    def _deal(self, batch: Batch) -> Batch:
        """Return this rank's tokens of each sequence, on its device."""
        inputs, targets = (part.to(self.ranks.device) for part in batch)
        num_tokens = inputs.shape[1]
        if self.layout.cp > 1:
            self._cut = context.TokenCut(
                num_tokens=num_tokens,
                num_ranks=self.layout.cp,
                order="zigzag" if self.layout.context == "ring" else "contiguous",
            )
            rank = self._coordinate(Axis.CP)
            self._place(self._cut.positions(rank, self.ranks.device))
            inputs, targets = (
                self._cut.take(part, rank, dim=1) for part in (inputs, targets)
            )
        if self._edges is not None:
            self._edges.expect(inputs.shape[1])
        return inputs, targets

    def _place(self, where: torch.Tensor) -> None:
        """Tell every part that looks at positions which ones this rank's tokens have."""
        for module in self.net.modules():
            if isinstance(module, nets.Embedding | LlamaAttention):
                module.where = where

    def _parts(self, batch: Batch) -> tuple[Sequence[torch.Tensor], ...]:
        """Cut a batch into micro-batches."""
        return tuple(part.tensor_split(self.num_microbatches) for part in batch)

    def _pipeline(
        self,
        inputs: Sequence[torch.Tensor],
        loss: Callable[[torch.Tensor, int], torch.Tensor],
        seconds: dict[str, float],
    ) -> PipelineRun:
        last = self.num_microbatches - 1

        return PipelineRun(
            stages=self.stages,
            mesh=self._mesh(Axis.PP),
            tokens=inputs,
            boundary=[self._boundary(part) for part in inputs],
            dtype=_DTYPES[self.layout.precision],
            loss=loss,
            surround=lambda action: self.accumulating(last=action.microbatch == last),
            seconds=seconds,
        )

    def _boundary(self, tokens_bt: torch.Tensor) -> tuple[int, ...]:
        num_samples, num_tokens = tokens_bt.shape
        if self.layout.sp:
            sizes = movement.balanced_sizes(num_tokens, self.layout.tp)
            num_tokens = sizes[self._coordinate(Axis.TP)]
        return (num_samples, num_tokens, self._hidden)

    @property
    def _has_head(self) -> bool:
        return self.stages[-1].head is not None

    @property
    def _summed_axes(self) -> tuple[str, ...]:
        """Axes over which replicas of this rank's weights lie."""
        axes = (Axis.DP, Axis.CP)
        return tuple(str(axis) for axis in axes if self.layout.degree(axis) > 1)

    def _mesh(self, axis: Axis) -> DeviceMesh:
        return self.ranks.mesh[str(axis)]

    def _coordinate(self, axis: Axis) -> int:
        return self.layout.coordinates(self.ranks.rank).get(axis, 0)


def _check_messages(layout: Layout, device: torch.device) -> None:
    """Refuse what would wait forever on NCCL.

    NCCL runs the messages between two ranks in the order of issue; pipelines and rings
    send both ways at once, which gloo allows.
    """
    ring = layout.cp > 1 and layout.context == "ring"
    if device.type == "cuda" and (layout.pp > 1 or ring):
        raise LayoutError(
            f"{'pp' if layout.pp > 1 else 'ring attention'} does not run on NCCL yet",
            hint='on GPUs use dp, fsdp, tp, or cp with context="ulysses"',
        )


def stage_units(stages: Sequence[Stage]) -> Iterator[list[nn.Parameter]]:
    """Give the parameters of each unit in the order that a backward fills them.

    Each layer is a unit; everything else that the rank holds is one more.
    """
    inside: set[int] = set()
    for stage in reversed(stages):
        for layer in reversed(list(stage.layers.values())):
            parameters = list(layer.parameters())
            inside.update(id(parameter) for parameter in parameters)
            yield parameters
    rest = {
        id(parameter): parameter
        for stage in stages
        for parameter in stage.parameters()
        if id(parameter) not in inside
    }
    if rest:
        yield list(rest.values())
