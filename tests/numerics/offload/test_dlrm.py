"""A recommendation model with cached tables trains as with resident ones."""

import torch
from torch import nn
from torch.nn import functional

from workbench.data import python_source
from workbench.offload.cached_embedding import CachedEmbedding
from workbench.offload.dlrm import Dlrm, text_features
from workbench.offload.row_cache import frequency_order
from workbench.offload.tiers import HostTier

NUM_TABLES, ROWS, WIDTH, BATCH, STEPS = 4, 5000, 8, 128, 60
CPU = torch.device("cpu")


def samples() -> list[tuple[torch.Tensor, ...]]:
    text = torch.as_tensor(python_source(tokens_per_sample=32).train[:20_000])
    features = text_features(text.to(torch.uint8), num_tables=NUM_TABLES, rows=ROWS)
    order = torch.randperm(len(features[0]), generator=torch.Generator().manual_seed(0))
    parts = [x[order][: STEPS * BATCH].split(BATCH) for x in features]
    return list(zip(*parts, strict=True))


def train(table: nn.Module, weight: nn.Parameter) -> list[float]:
    torch.manual_seed(2)
    net = Dlrm(table, num_dense=2, num_tables=NUM_TABLES, width=WIDTH)
    others = [p for p in net.parameters() if p is not weight]
    sparse = torch.optim.SGD([weight], lr=0.5)
    dense = torch.optim.AdamW(others, lr=0.01)
    losses = []
    for x, ids, labels in samples():
        loss = functional.binary_cross_entropy_with_logits(net(x, ids), labels)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        losses.append(loss.item())
    return losses


def test_cached_tables_train_as_resident_ones_bit_for_bit() -> None:
    torch.manual_seed(1)
    values = torch.randn(NUM_TABLES * ROWS, WIDTH) * 0.1
    resident = nn.Embedding.from_pretrained(values.clone(), freeze=False, sparse=True)
    _, order = frequency_order([ids for _, ids, _ in samples()], NUM_TABLES * ROWS)
    cached = CachedEmbedding(
        values, num_cached=400, tier=HostTier(), device=CPU, order=order
    )

    losses = train(resident, resident.weight)

    assert train(cached, cached.weight) == losses
    assert cached.cache.counts.rows_out > 0
    # Two percent of the rows; ids without skew would hit with 0.02.
    assert cached.cache.counts.hit_rate > 0.4
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    cached.close()
