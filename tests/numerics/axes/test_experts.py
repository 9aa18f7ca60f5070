"""A mixture of experts spread over ranks equals the dense one, byte for byte as said."""

import math
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.strategies.experts import MixtureOfExperts, balance_share, route, spread
from workbench.testing.ranks import Place, run_ranks

HIDDEN, FFN, TOKENS = 6, 10, 9
#: experts, top_k, capacity factor
CASES = [(4, 2, None), (5, 2, None), (4, 1, 1.0), (6, 3, 0.7)]
BALANCE = 0.3


def layer(case: tuple[Any, ...]) -> MixtureOfExperts:
    experts, top_k, capacity = case
    torch.manual_seed(5)
    moe = MixtureOfExperts(
        hidden=HIDDEN,
        ffn=FFN,
        num_experts=experts,
        top_k=top_k,
        capacity_factor=capacity,
        balance_weight=BALANCE,
    ).double()
    with torch.no_grad():
        for parameter in moe.parameters():
            parameter.normal_()
    return moe


def share(rank: int) -> torch.Tensor:
    """A rank's tokens; another number of them on each rank."""
    torch.manual_seed(100 + rank)
    return torch.randn(1, TOKENS + rank, HIDDEN, dtype=torch.float64)


def reference(
    moe: MixtureOfExperts, x_ND: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token by token, choice by choice: output, choices per expert, probabilities."""
    probabilities = moe.router(x_ND).softmax(-1)
    num_experts = probabilities.shape[1]
    chosen, experts = probabilities.topk(moe.top_k)
    weights = chosen / chosen.sum(1, keepdim=True)
    factor = moe.capacity_factor
    room = [
        math.inf
        if factor is None
        else math.ceil(factor * moe.top_k * len(x_ND) / num_experts)
    ] * num_experts
    output = [torch.zeros(HIDDEN, dtype=x_ND.dtype) for _ in x_ND]
    counts = torch.zeros(num_experts, dtype=torch.float64)
    for choice in range(moe.top_k):
        for token, x in enumerate(x_ND):
            expert = int(experts[token, choice])
            counts[expert] += 1
            if room[expert] == 0:
                continue
            room[expert] -= 1
            nets = moe.experts
            middle = functional.silu(nets.gate[expert] @ x) * (nets.up[expert] @ x)
            part = weights[token, choice] * (nets.down[expert] @ middle)
            output[token] = output[token] + part
    return torch.stack(output), counts, probabilities


def whole_batch(
    case: tuple[Any, ...], num_ranks: int
) -> tuple[list[torch.Tensor], float, list[torch.Tensor], list[torch.Tensor]]:
    """The dense reference over all ranks' tokens: outputs, balance, gradients."""
    moe = layer(case)
    inputs = [share(rank).requires_grad_() for rank in range(num_ranks)]
    parts = [reference(moe, x.flatten(0, 1)) for x in inputs]
    counts = torch.stack([part[1] for part in parts]).sum(0)
    probabilities = torch.cat([part[2] for part in parts])
    fractions = counts / counts.sum()
    balance = len(counts) * (fractions * probabilities.mean(0)).sum()
    objective = sum(part[0].sin().sum() for part in parts) + BALANCE * balance
    assert isinstance(objective, torch.Tensor)
    objective.backward()
    gradients = [p.grad for p in moe.parameters() if p.grad is not None]
    inputs_grads = [x.grad for x in inputs if x.grad is not None]
    return [part[0].detach() for part in parts], balance.item(), gradients, inputs_grads


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one - other.reshape(one.shape)).abs().max().item()


def compare(place: Place) -> list[dict[str, Any]]:
    size = place.group.world_size
    mesh = place.group.ranks(Layout(ep=size)).mesh
    group = mesh.get_group()
    found = []
    for index, case in enumerate(CASES):
        moe = layer(case)
        spread(moe, mesh)
        x = share(place.rank).requires_grad_()
        with place.group.phase(f"{index} forward"):
            y = moe(x)
        with place.group.phase(f"{index} backward"):
            y.sin().sum().backward()
        outputs, balance, gradients, inputs = whole_batch(case, size)
        router = moe.router.weight.grad
        assert router is not None
        assert x.grad is not None
        torch.distributed.all_reduce(router, group=group)
        balances = torch.tensor([moe.balance], dtype=torch.float64)
        torch.distributed.all_reduce(balances, group=group)
        mine = [router]
        for parameter in moe.experts.parameters():
            assert isinstance(parameter.grad, DTensor)
            mine.append(parameter.grad.full_tensor())
        found.append(
            {
                "output": gap(y, outputs[place.rank]),
                "balance": abs(balances.item() - balance),
                "input": gap(x.grad, inputs[place.rank]),
                "gradients": max(
                    gap(a, b) for a, b in zip(mine, gradients, strict=True)
                ),
            }
        )
    table = {
        key: (traffic.count, traffic.payload_bytes, traffic.sent_bytes)
        for key, traffic in place.group.accounting.snapshot().items()
    }
    return [*found, {"table": table}]


@pytest.fixture(scope="module", params=[2, 4])
def results(request: pytest.FixtureRequest) -> list[Any]:
    return run_ranks(compare, num_ranks=request.param)


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_equals_the_dense_reference(results: list[Any], index: int) -> None:
    for result in results:
        # Double precision; only the order of sums differs.
        assert max(result[index].values()) < 1e-12, result[index]


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_traffic_is_the_closed_form(results: list[Any], index: int) -> None:
    experts, top_k, capacity = CASES[index]
    size = len(results)
    chunk = -(-experts // size)
    moe = layer(CASES[index])
    #: choices[r][s]: of rank r's tokens, for experts of rank s
    choices = []
    for rank in range(size):
        routing = route(
            moe.router(share(rank).flatten(0, 1)), top_k=top_k, capacity_factor=capacity
        )
        owners = routing.experts[routing.kept] // chunk
        choices.append(torch.bincount(owners, minlength=size).tolist())
    row = 8 * HIDDEN

    for rank, result in enumerate(results):
        table = result[-1]["table"]
        mine = sum(choices[rank]) * row
        theirs = sum(choices[other][rank] for other in range(size)) * row
        kept = choices[rank][rank] * row
        told = 8 * size * chunk
        forward = table[f"{index} forward", "all_to_all", "ep"]
        backward = table[f"{index} backward", "all_to_all", "ep"]
        assert backward == (2, mine + theirs, mine + theirs - 2 * kept)
        assert forward == (
            3,
            told + mine + theirs,
            told * (size - 1) // size + mine + theirs - 2 * kept,
        )
        assert table[f"{index} forward", "all_reduce", "ep"][:2] == (
            1,
            8 * (experts + 1),
        )


def test_capacity_drops_late_second_choices_first() -> None:
    logits = torch.tensor([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0]])

    routing = route(logits, top_k=2, capacity_factor=2 / 3)

    # Two places per expert: first choices fill expert 0, token 2 leads at expert 1.
    assert routing.kept.tolist() == [[True, True], [True, False], [True, False]]


def test_balanced_choices_have_a_loss_of_one() -> None:
    routing = route(torch.eye(4) * 100, top_k=1, capacity_factor=None)

    assert balance_share(routing).item() == pytest.approx(1.0)


def mutant(place: Place) -> float:
    """As `compare`, with rows that never travel."""
    from workbench.strategies.experts import layer as module

    module.exchange_rows = (
        lambda x, sent, received, group: x.new_zeros(  # type: ignore[assignment]
            (sum(received), *x.shape[1:])
        )
    )
    mesh = place.group.ranks(Layout(ep=2)).mesh
    moe = layer(CASES[0])
    spread(moe, mesh)
    return gap(moe(share(place.rank)), whole_batch(CASES[0], 2)[0][place.rank])


def test_a_missing_exchange_shows() -> None:
    assert min(run_ranks(mutant)) > 1e-3


def refused(place: Place) -> str:
    mesh = place.group.ranks(Layout(ep=2)).mesh
    try:
        spread(layer((1, 1, None)), mesh)
    except LayoutError as error:
        return str(error)
    return ""


def test_more_ranks_than_experts_are_refused() -> None:
    assert run_ranks(refused)[0] == (
        "1 experts cannot be spread over ep 2 ranks\nhint: ep=1 or fewer"
    )
