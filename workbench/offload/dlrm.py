"""A small recommendation model (DLRM) whose tables may be cached, and data for it.

Naumov et al. (arXiv 1906.00091): dense features through a small net, categorical ones
through tables, all pairs of vectors by their dot product, and a net on top.
"""

import itertools

import torch
from torch import nn

from workbench.errors import OffloadError


class Dlrm(nn.Module):
    """Dense and categorical features -> one logit.

    Args:
        table: Ids [B, features] -> vectors [B, features, width]: an `nn.Embedding` or a
            `CachedEmbedding` of all features' values, see `cached_embedding.joined`.
        num_dense: Dense features.
        num_tables: Categorical features.
        width: Of the vectors.
        hidden: Of both nets.
    """

    def __init__(
        self,
        table: nn.Module,
        *,
        num_dense: int,
        num_tables: int,
        width: int,
        hidden: int = 32,
    ) -> None:
        super().__init__()
        self.table = table
        self.bottom = _net(num_dense, hidden, width)
        pairs = list(itertools.combinations(range(num_tables + 1), 2))
        self._first = torch.tensor([first for first, _ in pairs])
        self._second = torch.tensor([second for _, second in pairs])
        self.top = _net(len(pairs) + width, hidden, 1)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Dense [B, num_dense] and ids [B, num_tables] -> logits [B]."""
        below = self.bottom(dense)
        vectors = torch.cat([below[:, None], self.table(ids)], dim=1)
        dots = (vectors[:, self._first] * vectors[:, self._second]).sum(dim=-1)
        logits: torch.Tensor = self.top(torch.cat([below, dots], dim=1)).squeeze(1)
        return logits


def _net(num_in: int, hidden: int, num_out: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(num_in, hidden), nn.ReLU(), nn.Linear(hidden, num_out)
    )


def text_features(
    data: torch.Tensor, *, num_tables: int, rows: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make categorical data of real skew from bytes of text.

    The features of a position are the 1, 2, ... bytes up to it, as numbers below `rows`
    per feature; n-grams of text are as uneven as users and goods are. To be predicted is
    whether a word goes on.

    Args:
        data: Bytes of text, uint8 [N].
        num_tables: Features, i.e. the longest n-gram.
        rows: Values of each feature.

    Returns:
        Dense [M, 2] (share of the line passed, capital or not), ids [M, num_tables]
        numbered through all features, and labels [M], with M = N - num_tables.

    Raises:
        OffloadError: Less text than the longest n-gram.
    """
    text = data.to(torch.int64)
    num_samples = len(text) - num_tables
    if num_samples < 1:
        raise OffloadError(
            f"{len(text)} bytes are too few for n-grams of {num_tables}",
            hint="give more text",
        )
    code = torch.zeros(num_samples, dtype=torch.int64)
    ids = []
    for length in range(1, num_tables + 1):
        start = num_tables - length
        code = (code * 257 + text[start : start + num_samples] + 1) % 2_147_483_647
        ids.append(code % rows + (length - 1) * rows)
    here = text[num_tables - 1 : -1]
    following = text[num_tables:]
    dense = torch.stack([_line_share(text)[num_tables - 1 : -1], _is_capital(here)], 1)
    return dense, torch.stack(ids, dim=1), _is_letter(following)


def _line_share(text: torch.Tensor) -> torch.Tensor:
    """Return for each byte how far into its line it is, 1.0 from 80 bytes on."""
    index = torch.arange(len(text))
    starts = torch.where(text == ord("\n"), index, torch.zeros_like(index))
    return ((index - starts.cummax(0).values) / 80).clamp(max=1.0)


def _is_capital(text: torch.Tensor) -> torch.Tensor:
    return ((text >= ord("A")) & (text <= ord("Z"))).float()


def _is_letter(text: torch.Tensor) -> torch.Tensor:
    small = (text >= ord("a")) & (text <= ord("z"))
    return (small | _is_capital(text).bool()).float()
