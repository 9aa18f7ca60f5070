"""Cached tables: S17's hit rates, and training equal to a table that fits."""

from functools import cache

import pytest
import torch
import torch.distributed as dist
from torch import nn

from workbench.errors import OffloadError
from workbench.offload.cached_embedding import (
    CachedEmbedding,
    ColumnSplitEmbedding,
    columns_of,
)
from workbench.offload.row_cache import RowCache, frequency_order
from workbench.offload.tiers import DiskTier, HostTier
from workbench.testing.ranks import Place, run_ranks

CPU = torch.device("cpu")
NUM_ROWS, NUM_BATCHES, BATCH = 100_000, 200, 2048


@cache
def zipf_batches() -> tuple[torch.Tensor, ...]:
    """S17's prototype: 200 batches of 2048 ids, Zipf with exponent 1.05."""
    weights = 1 / torch.arange(1, NUM_ROWS + 1, dtype=torch.float64) ** 1.05
    generator = torch.Generator().manual_seed(0)
    ids = torch.multinomial(
        weights, NUM_BATCHES * BATCH, replacement=True, generator=generator
    )
    _, order = frequency_order([ids], NUM_ROWS)
    row_of = torch.empty_like(order)
    row_of[order] = torch.arange(NUM_ROWS)
    return row_of[ids].split(BATCH)


#: S17's prototype; its frequency cache began full, the others empty. Another draw of
#: the same distribution moves these by less than 1 %: 2 % is what the issue allows.
PROTOTYPE = {
    (0.015, "dataset"): (0.688, None),
    (0.015, "lfu"): (0.679, None),
    (0.015, "lru"): (0.619, None),
    (0.015, "random"): (0.614, None),
    (0.05, "dataset"): (0.806, 158_208),
    (0.05, "lfu"): (0.777, 174_062),
    (0.05, "lru"): (0.728, 211_646),
    (0.05, "random"): (0.705, 226_556),
}


@pytest.mark.parametrize(("ratio", "policy"), PROTOTYPE)
def test_hit_rates_and_moved_rows_of_the_prototype(ratio, policy) -> None:
    num_cached = round(ratio * NUM_ROWS)
    rows = RowCache(
        torch.zeros(NUM_ROWS, 1),
        torch.zeros(num_cached, 1),
        policy=policy,
        tier=HostTier(),
    )

    for batch in zipf_batches():
        rows.prepare(batch)

    hit_rate, moved = PROTOTYPE[ratio, policy]
    assert rows.counts.hit_rate == pytest.approx(hit_rate, rel=0.02)
    if moved is not None:
        both = rows.counts.rows_in + rows.counts.rows_out
        assert both == pytest.approx(moved, rel=0.02)
    rows.close()


# Training ----------------------------------------------------------------------------

SMALL_ROWS, WIDTH = 1000, 8


def small_batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    weights = 1 / torch.arange(1, SMALL_ROWS + 1, dtype=torch.float64) ** 1.05
    ids = torch.randperm(SMALL_ROWS, generator=generator)[
        torch.multinomial(weights, 30 * 64, replacement=True, generator=generator)
    ]
    return list(ids.view(30, 16, 4))


def initial(dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(SMALL_ROWS, WIDTH, generator=generator, dtype=dtype)


def loss_of(vectors: torch.Tensor) -> torch.Tensor:
    return (vectors.sum(dim=1) - 1.0).square().mean()


def train(module: nn.Module, weight, optimizer_of, after=lambda _: None):
    optimizer = optimizer_of([weight])
    losses = []
    for batch in small_batches():
        loss = loss_of(module(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(optimizer)
        losses.append(loss.item())
    return losses


def uncached(dtype, optimizer_of):
    module = nn.Embedding.from_pretrained(initial(dtype), freeze=False, sparse=True)
    return train(module, module.weight, optimizer_of), module.weight.data


def cached(dtype, tier=None, **kwargs) -> CachedEmbedding:
    _, order = frequency_order(small_batches(), SMALL_ROWS)
    return CachedEmbedding(
        initial(dtype),
        num_cached=100,
        tier=tier or HostTier(),
        device=CPU,
        order=order,
        buffer_rows=16,
        **kwargs,
    )


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


OPTIMIZERS = [
    lambda parameters: torch.optim.SparseAdam(parameters, lr=0.01),
    lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("policy", ["dataset", "lfu", "lru", "random"])
def test_training_equals_the_uncached_table_bit_for_bit(dtype, policy) -> None:
    losses, table = uncached(dtype, sgd)
    module = cached(dtype, policy=policy)

    assert train(module, module.weight, sgd) == losses
    assert torch.equal(module.table(), table)
    assert module.cache.counts.rows_out > 0
    module.close()


# Torch's sparse Adam itself builds sparse tensors in the way that it warns of.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("optimizer_of", OPTIMIZERS)
def test_optimizer_states_move_with_their_rows(optimizer_of) -> None:
    losses, table = uncached(torch.float64, optimizer_of)
    module = cached(torch.float64)

    # These coalesce first, which sorts ids unstably: repeats of an id in one batch add
    # up in an order that depends on its number, so their sum may round otherwise.
    assert train(module, module.weight, optimizer_of, module.follow) == pytest.approx(
        losses, rel=1e-13
    )
    torch.testing.assert_close(module.table(), table, rtol=1e-12, atol=1e-14)
    assert module.cache.counts.rows_out > 0
    module.close()


def test_a_table_on_disk_changes_nothing(tmp_path) -> None:
    losses, table = uncached(torch.float32, sgd)
    module = cached(torch.float32, DiskTier(tmp_path))

    assert train(module, module.weight, sgd) == losses
    assert torch.equal(module.table(), table)
    module.close()


def test_prefetched_batches_find_all_their_rows() -> None:
    module = cached(torch.float32)
    coming = small_batches()[:2]

    module.prefetch(*coming)
    before = module.cache.counts.rows_in
    for batch in coming:
        module(batch)

    assert module.cache.counts.rows_in == before
    module.close()


def test_a_cache_smaller_than_a_batch_is_refused_with_numbers() -> None:
    rows = RowCache(
        torch.zeros(100, 2), torch.zeros(10, 2), policy="lru", tier=HostTier()
    )

    with pytest.raises(OffloadError, match=r"need 11 different rows .* holds 10"):
        rows.prepare(torch.arange(11))
    rows.close()


def split_training(place: Place) -> tuple[list[float], torch.Tensor]:
    table = columns_of(initial(torch.float32), part=place.rank, num_parts=2)
    columns = CachedEmbedding(
        table, num_cached=200, tier=HostTier(), device=CPU, policy="lfu"
    )
    module = ColumnSplitEmbedding(columns, dist.group.WORLD)
    optimizer = sgd([columns.weight])
    losses = []
    for batch in small_batches():
        mine = batch.tensor_split(2)[place.rank]
        # The mean over this half of the batch counts half.
        loss = loss_of(module(mine)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
    whole = columns.table()
    columns.close()
    return losses, whole.tolist()


def test_columns_over_two_ranks_equal_the_whole_table() -> None:
    losses, table = uncached(torch.float32, sgd)

    results = run_ranks(split_training)

    assert torch.equal(
        torch.cat([torch.tensor(part) for _, part in results], dim=1), table
    )
    # A mean of two halves rounds otherwise than one mean.
    assert results[0][0] == pytest.approx(losses, rel=1e-6)
