"""A net cut into stages, each with some layers and perhaps one of the ends."""

from functools import partial

import torch
from torch import nn

from workbench.strategies.movement import balanced_sizes
from workbench.strategies.nets import Decoder, Embedding


class Stage(nn.Module):
    """Some layers of a net, with the embedding before or the head after them.

    Its parameters have their names of the whole net.

    Args:
        embedding: On the first stage.
        layers: By their index in the whole net.
        norm, head: On the last stage.
    """

    def __init__(
        self,
        *,
        embedding: Embedding | None,
        layers: dict[str, nn.Module],
        norm: nn.Module | None,
        head: nn.Module | None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleDict(layers)
        self.norm = norm
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens [B, T] or what the stage before gave -> [B, T, D], or logits."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        if self.norm is None or self.head is None:
            return x
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def first_layer(
    stage: int, *, num_layers: int, num_stages: int, ends_as_layers: bool
) -> int:
    """Return where a stage's layers begin.

    Layers are dealt in order, the first stages taking one more where they do not
    divide; the ends of the net may count as a layer each.

    >>> [first_layer(s, num_layers=4, num_stages=2, ends_as_layers=True) for s in (0, 1, 2)]
    [0, 2, 4]
    """
    ends = int(ends_as_layers)
    sizes = balanced_sizes(num_layers + 2 * ends, num_stages)
    return min(max(sum(sizes[:stage]) - ends, 0), num_layers)


def cut_stages(
    net: Decoder,
    *,
    rank: int,
    num_ranks: int,
    chunks: int,
    ends_as_layers: bool = False,
) -> list[Stage]:
    """Return the stages of one pipeline rank, in the order data passes them.

    Chunk c of rank r is stage c * num_ranks + r.
    """
    num_stages = num_ranks * chunks
    begin = partial(
        first_layer,
        num_layers=len(net.layers),
        num_stages=num_stages,
        ends_as_layers=ends_as_layers,
    )
    stages = []
    for chunk in range(chunks):
        number = chunk * num_ranks + rank
        last_stage = number == num_stages - 1
        stages.append(
            Stage(
                embedding=net.embedding if number == 0 else None,
                layers={
                    str(index): net.layers[index]
                    for index in range(begin(number), begin(number + 1))
                },
                norm=net.norm if last_stage else None,
                head=net.head if last_stage else None,
            )
        )
    return stages


def held_parts(stages: list[Stage]) -> nn.Module:
    """Return one module with all that the stages hold, under its names."""
    if len(stages) == 1:
        return stages[0]
    return Stage(
        embedding=stages[0].embedding,
        layers={
            index: layer for stage in stages for index, layer in stage.layers.items()
        },
        norm=stages[-1].norm,
        head=stages[-1].head,
    )
