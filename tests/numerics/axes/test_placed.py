"""Any module over two or three ranks equals serial, its code unchanged."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.numerics.axes.spatial_nets import ResNet, UNet3d
from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.strategies.placed import balance, cut_points, place
from workbench.testing.ranks import Place, run_ranks

Batch = tuple[torch.Tensor, torch.Tensor]


class Reused(nn.Module):
    """One block that runs three times, between others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block(self.first(x))
        x = x + self.block(x)
        return self.last(self.block(torch.relu_(x)))


class Branching(nn.Module):
    """Which path it takes, and how often, depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.left = nn.Linear(8, 8)
        self.right = nn.Linear(8, 8)
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        while x.norm() > 2:
            x = self.left(x).tanh() if x.mean() > 0 else self.right(x).tanh()
            x = x * 0.7
        return self.last(x)


class Tied(nn.Module):
    """An embedding whose matrix is the head's, and positions made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.positions = nn.Embedding(5, 8)
        self.middle = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        where = torch.arange(x.shape[1], device=x.device)
        x = self.tokens(x) + self.positions(where)
        return self.head(self.norm(self.middle(x))).flatten(0, 1)


def linear_batch() -> Batch:
    return torch.randn(8, 6).double(), torch.randint(0, 4, (8,))


NETS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]] = {
    "u-net": (
        UNet3d,
        lambda: (
            torch.randn(4, 1, 8, 8, 4).double(),
            torch.randint(0, 3, (4, 8, 8, 4)),
        ),
    ),
    "resnet": (
        ResNet,
        lambda: (torch.randn(4, 3, 32, 32).double(), torch.randint(0, 5, (4,))),
    ),
    "reused": (Reused, linear_batch),
    "branching": (Branching, linear_batch),
    "tied": (
        Tied,
        lambda: (torch.randint(0, 11, (4, 5)), torch.randint(0, 11, (20,))),
    ),
}
#: Where the data decides, a person says what lies where.
BY_HAND = {"branching": {"first": 0, "left": 1, "right": 0, "last": 1}}


def made(name: str) -> nn.Module:
    torch.manual_seed(3)
    return NETS[name][0]().double()


def batch(name: str) -> Batch:
    torch.manual_seed(6)
    return NETS[name][1]()


def microbatches(name: str, count: int) -> list[Batch]:
    x, y = batch(name)
    return list(zip(x.chunk(count), y.chunk(count), strict=True))


def serial(name: str, count: int) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of the same micro-batches in one process."""
    net, total = made(name), 0.0
    for x, y in microbatches(name, count):
        loss = functional.cross_entropy(net(x), y) / count
        loss.backward()
        total += loss.item()
    return total, gradients(net)


def gradients(net: nn.Module) -> dict[str, Any]:
    return {
        name: parameter.grad.numpy()
        for name, parameter in net.named_parameters()
        if parameter.grad is not None
    }


def over_ranks(
    place_: Place, name: str, count: int
) -> tuple[float, dict[str, Any], int]:
    size = place_.group.world_size
    group = place_.group.ranks(Layout(pp=size)).mesh.get_group()
    net = made(name)
    owners = BY_HAND.get(name) or balance(net, (batch(name)[0],), num_parts=size)
    placed = place(net, owners, group=group)
    losses = [
        placed.run(lambda x=x, y=y: functional.cross_entropy(net(x), y) / count)  # type: ignore[misc]
        for x, y in microbatches(name, count)
    ]
    total = sum(placed.value(loss).item() for loss in losses)
    placed.backward(losses)
    held = sum(parameter.numel() for parameter in placed.parameters())
    return total, gradients(net), held


CASES = [
    (name, ranks, count)
    for ranks in (2, 3)
    for name in NETS
    for count in (1, 2)
    if not (name == "branching" and ranks == 3)
]


def all_cases(place_: Place) -> dict[tuple[str, int], Any]:
    return {
        (name, count): over_ranks(place_, name, count)
        for name, ranks, count in CASES
        if ranks == place_.group.world_size
    }


@pytest.fixture(scope="module")
def results() -> dict[int, list[Any]]:
    return {ranks: run_ranks(all_cases, num_ranks=ranks) for ranks in (2, 3)}


@pytest.mark.parametrize(("name", "ranks", "count"), CASES)
def test_loss_and_gradients_equal_serial(
    results: dict[int, list[Any]], name: str, ranks: int, count: int
) -> None:
    loss, expected = serial(name, count)
    found: dict[str, Any] = {}
    for result in results[ranks]:
        total, part, _ = result[name, count]
        assert total == pytest.approx(loss, abs=1e-12)
        assert not set(found) & set(part)
        found |= part

    assert set(found) == set(expected)
    for key, value in expected.items():
        # The same operations in the same order, on other ranks.
        assert abs(found[key] - value).max() < 1e-12, key


@pytest.mark.parametrize("name", NETS)
def test_every_parameter_lies_on_one_rank(
    results: dict[int, list[Any]], name: str
) -> None:
    parts = [result[name, 1][2] for result in results[2]]

    assert sum(parts) == sum(parameter.numel() for parameter in made(name).parameters())
    assert min(parts) > 0


def test_cuts_make_the_dearest_part_cheapest() -> None:
    costs = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]

    starts = cut_points(costs, 3)

    parts = [
        sum(costs[begin:end])
        for begin, end in zip(starts, (*starts[1:], len(costs)), strict=True)
    ]
    assert max(parts) == 14.0  # 3 1 4 1 5 | 9 2 | 6, and no cut is better


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(10)])
        self.again = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.again(self.again(x))


def test_parts_cost_nearly_the_same() -> None:
    owners = balance(Deep(), (torch.zeros(2, 6),), num_parts=2)

    # Twelve equal products, two of them by the module that is used twice.
    loads = [0, 0]
    for name, owner in owners.items():
        loads[owner] += 2 if name == "again" else 1
    assert max(loads) / (sum(loads) / 2) <= 1.2


def test_a_forward_that_needs_values_is_refused_with_the_way_out() -> None:
    with pytest.raises(LayoutError, match="Branching needs values") as caught:
        balance(Branching(), (torch.zeros(2, 6),), num_parts=2)

    assert caught.value.hint is not None
    assert "place(net" in caught.value.hint


def unowned(place_: Place) -> str:
    group = place_.group.ranks(Layout(pp=2)).mesh.get_group()
    try:
        place(Reused(), {"first": 0, "block": 1}, group=group)
    except LayoutError as error:
        return str(error)
    return ""


def test_a_parameter_without_an_owner_is_named() -> None:
    assert run_ranks(unowned)[0] == (
        "nobody holds last.weight\nhint: name its module: {'last': 0}"
    )


def messages(place_: Place) -> tuple[list[str], dict[Any, Any]]:
    """What a rank does in which order, and what it sends, with four micro-batches."""
    trace: list[str] = []
    group = place_.group.ranks(Layout(pp=2)).mesh.get_group()
    net = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)).double()
    placed = place(net, {"0": 0, "1": 1}, group=group)
    send, receive = placed.send, placed.receive
    placed.send = lambda *args: (trace.append("send"), send(*args))[1]  # type: ignore[method-assign]
    placed.receive = lambda *args: (trace.append("receive"), receive(*args))[1]  # type: ignore[method-assign]
    x = torch.randn(8, 6).double()
    losses = [placed.run(lambda part=part: net(part).sum()) for part in x.chunk(4)]  # type: ignore[misc]
    placed.backward(losses)
    table = place_.group.accounting.snapshot()
    sent = table["cell", "send", "pp"]
    return trace, {"count": sent.count, "payload_bytes": sent.payload_bytes}


def test_micro_batches_flow_as_in_gpipe() -> None:
    first, second = run_ranks(messages)

    # Nothing keeps the first rank from going on before the second has answered.
    assert first[0] == ["send"] * 4 + ["receive"] * 4
    assert second[0] == ["receive"] * 4 + ["send"] * 4
    assert first[1] == second[1] == {"count": 4, "payload_bytes": 4 * 2 * 5 * 8}
