"""Attention over a cut sequence equals attention over the whole, byte for byte as said."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.strategies import context
from workbench.strategies.context import TokenCut, ring
from workbench.strategies.context.ulysses import HeadCut
from workbench.strategies.movement import sent_elements
from workbench.testing.ranks import Place, run_ranks

BATCH, WIDTH = 2, 4
WAYS = {
    "ring": context.ring_attention,
    "gathered": context.gathered_attention,
    "ulysses": context.ulysses_attention,
}
#: way, order, query heads, key heads, tokens, causal
CASES = [
    ("ring", "zigzag", 6, 2, 21, True),
    ("ring", "contiguous", 6, 2, 21, True),
    ("ring", "zigzag", 4, 4, 24, False),
    ("ring", "zigzag", 4, 4, 3, True),
    ("gathered", "zigzag", 6, 2, 21, True),
    ("gathered", "contiguous", 4, 4, 24, False),
    ("ulysses", "contiguous", 6, 2, 21, True),
    ("ulysses", "contiguous", 8, 4, 24, True),
    ("ulysses", "contiguous", 5, 1, 10, False),
]


def whole(num_heads: int, num_tokens: int, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(BATCH, num_heads, num_tokens, WIDTH, dtype=torch.float64)


def attend_and_compare(
    place: Place, case: tuple[Any, ...]
) -> tuple[float, list[float]]:
    """Gaps of the output and of the three gradients to the whole."""
    way, order, heads, key_heads, num_tokens, causal = case
    group = place.group.ranks(Layout(cp=place.group.world_size)).mesh.get_group()
    cut = TokenCut(num_tokens=num_tokens, num_ranks=group.size(), order=order)
    wholes = [
        whole(count, num_tokens, seed).requires_grad_()
        for seed, count in enumerate((heads, key_heads, key_heads))
    ]
    expected = functional.scaled_dot_product_attention(
        *wholes, is_causal=causal, enable_gqa=True
    )
    slope = whole(heads, num_tokens, 9)
    expected.backward(slope)
    mine = [cut.take(x.detach(), place.rank, dim=2).requires_grad_() for x in wholes]
    with place.group.phase(f"{CASES.index(case)} forward"):
        output = WAYS[way](*mine, cut=cut, group=group, causal=causal)
    with place.group.phase(f"{CASES.index(case)} backward"):
        output.backward(cut.take(slope, place.rank, dim=2))
    gaps = []
    for part, x in zip(mine, wholes, strict=True):
        assert part.grad is not None
        assert x.grad is not None
        gaps.append(_gap(part.grad, cut.take(x.grad, place.rank, dim=2)))
    return _gap(output, cut.take(expected, place.rank, dim=2)), gaps


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    assert one.shape == other.shape
    return (one - other).abs().max().item() if one.numel() else 0.0


def all_cases(place: Place) -> tuple[list[Any], dict[Any, Any]]:
    gaps = [attend_and_compare(place, case) for case in CASES]
    table = {
        key: (traffic.count, traffic.payload_bytes, traffic.sent_bytes)
        for key, traffic in place.group.accounting.snapshot().items()
    }
    return gaps, table


@pytest.fixture(scope="module", params=[2, 4])
def results(request: pytest.FixtureRequest) -> list[Any]:
    return run_ranks(all_cases, num_ranks=request.param)


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_output_and_gradients_equal_the_whole(results: list[Any], index: int) -> None:
    for gaps, _ in results:
        output_gap, gradient_gaps = gaps[index]

        # Double precision; only the order of sums differs.
        assert output_gap < 1e-13
        assert max(gradient_gaps) < 1e-12


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_traffic_is_the_closed_form(results: list[Any], index: int) -> None:
    way, order, heads, key_heads, num_tokens, _ = CASES[index]
    size = len(results)
    cut = TokenCut(num_tokens=num_tokens, num_ranks=size, order=order)

    for rank, (_, table) in enumerate(results):
        counted = {
            (phase.split()[1], op): value
            for (phase, op, axis), value in table.items()
            if phase.split()[0] == str(index) and axis == "cp"
        }
        assert counted == closed_form(way, cut, heads, key_heads, rank)


def closed_form(
    way: str, cut: TokenCut, heads: int, key_heads: int, rank: int
) -> dict[tuple[str, str], tuple[int, int, int]]:
    per_token = 8 * 2 * BATCH * key_heads * WIDTH
    size = cut.num_ranks
    if way == "ring":
        # Blocks that pass by: all but the next rank's own; gradients: all but mine.
        blocks = [cut.size((rank - step) % size) for step in range(size)]
        keys = [tokens for tokens in blocks[:-1] if tokens]
        slopes = [tokens for tokens in blocks[1:] if tokens]
        table = {}
        for phase, sent in (("forward", keys), ("backward", keys + slopes)):
            payload = sum(sent) * per_token
            if sent:
                table[phase, "send"] = (len(sent), payload, payload)
        return table
    if way == "gathered":
        payload = size * max(cut.sizes) * per_token
        sent = payload * (size - 1) // size
        return {
            ("forward", "all_gather"): (1, payload, sent),
            # gloo runs it as an all-reduce.
            ("backward", "reduce_scatter"): (1, payload, 2 * sent),
        }
    shape = (BATCH, heads, cut.num_tokens, WIDTH)
    head_cut = HeadCut(shape, (BATCH, key_heads, cut.num_tokens, WIDTH), cut)
    queries = (head_cut.by_tokens, head_cut.by_heads)
    keys_values = (head_cut.keys_by_tokens, head_cut.keys_by_heads)
    routes = [queries, keys_values, keys_values, queries[::-1]]
    table = {}
    for phase, ways in (
        ("forward", routes),
        ("backward", [route[::-1] for route in routes]),
    ):
        sent = sum(8 * sent_elements(*route, rank) for route in ways)
        kept = sum(8 * _kept(*route, rank) for route in ways)
        table[phase, "all_to_all"] = (4, sent + kept, sent)
    return table


def _kept(source: Any, target: Any, rank: int) -> int:
    lengths = [
        max(0, min(a[1], b[1]) - max(a[0], b[0]))
        for a, b in zip(source.boxes[rank], target.boxes[rank], strict=True)
    ]
    return math.prod(lengths)


def test_even_ring_and_ulysses_send_what_the_planner_says() -> None:
    """Per layer: (c-1) sends of 4gkT (2-byte) and (4ak + 4gk)T(c-1)/c."""
    cut = TokenCut(num_tokens=24, num_ranks=4, order="contiguous")
    tokens = 24 // 4

    ring = closed_form("ring", cut, 8, 4, rank=1)
    ulysses = closed_form("ulysses", cut, 8, 4, rank=1)

    keys = 8 * 2 * BATCH * 4 * WIDTH * tokens
    assert ring["forward", "send"] == (3, 3 * keys, 3 * keys)
    assert ring["backward", "send"] == (6, 6 * keys, 6 * keys)
    both = 8 * BATCH * (2 * 8 + 2 * 4) * WIDTH * tokens
    assert ulysses["forward", "all_to_all"] == (4, both, both * 3 // 4)


def causal_pairs(cut: TokenCut, rank: int) -> int:
    """Query-key pairs that a rank computes."""
    return int((cut.positions(rank) + 1).sum())


def test_zigzag_gives_every_rank_the_same_work() -> None:
    zigzag = TokenCut(num_tokens=64, num_ranks=4, order="zigzag")
    contiguous = TokenCut(num_tokens=64, num_ranks=4, order="contiguous")

    assert [causal_pairs(zigzag, rank) for rank in range(4)] == [520] * 4
    assert [causal_pairs(contiguous, rank) for rank in range(4)] == [136, 392, 648, 904]


def in_bfloat16(place: Place) -> tuple[float, float]:
    """Ring attention's gap to float64, and that of attention in one process."""
    group = place.group.ranks(Layout(cp=4)).mesh.get_group()
    cut = TokenCut(num_tokens=64, num_ranks=4, order="zigzag")
    exact = [whole(4, 64, seed) for seed in range(3)]
    rounded = [x.bfloat16() for x in exact]
    attend = functional.scaled_dot_product_attention
    expected = cut.take(attend(*exact, is_causal=True), place.rank, dim=2)
    usual = cut.take(attend(*rounded, is_causal=True), place.rank, dim=2)
    mine = [cut.take(x, place.rank, dim=2) for x in rounded]
    ours = context.ring_attention(*mine, cut=cut, group=group)
    assert ours.dtype == torch.bfloat16
    return _gap(ours.double(), expected), _gap(usual.double(), expected)


def test_bfloat16_loses_no_more_than_in_one_process() -> None:
    for ours, usual in run_ranks(in_bfloat16, num_ranks=4):
        # Inputs are rounded alike; ours adds no rounding between blocks.
        assert ours < 1.5 * usual


def mutant(place: Place) -> float:
    """As `attend_and_compare`, with nothing passed around: own keys each time."""
    size, rank = place.group.world_size, place.rank
    ring._around = lambda kv, cut, group: (  # type: ignore[assignment]
        ((rank - step) % size, kv) for step in range(size)
    )
    return attend_and_compare(place, CASES[2])[0]


def test_a_missing_exchange_shows() -> None:
    assert min(run_ranks(mutant)) > 1e-3


def refused(place: Place) -> list[str]:
    group = place.group.ranks(Layout(cp=2)).mesh.get_group()
    x = torch.zeros(1, 2, 3, 4)
    said = []
    for way, order in (("ring", "zigzag"), ("ulysses", "zigzag")):
        tokens = 8 if way == "ring" else 6
        cut = TokenCut(num_tokens=tokens, num_ranks=2, order=order)  # type: ignore[arg-type]
        try:
            WAYS[way](x, x, x, cut=cut, group=group)
        except LayoutError as error:
            said.append(error.message)
    return said


def test_wrong_tokens_and_orders_are_refused() -> None:
    assert run_ranks(refused)[1] == [
        "rank 1 holds 4 of 8 tokens, its queries have 3",
        "Ulysses gives each rank all tokens of some heads; the cut is zigzag",
    ]
