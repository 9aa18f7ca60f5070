"""A person's own module over layouts equals one process, with few lines added."""

import difflib
import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from tests.numerics.axes.spatial_nets import ResNet, UNet3d
from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.strategies.parallelize import parallelize
from workbench.strategies.tensor import Rule
from workbench.testing.ranks import Place, run_ranks

STEPS = 3


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 11)
        self.down = nn.Linear(11, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).tanh())


RULES = [
    Rule(pattern="up", placing="enter"),
    Rule(pattern="up", placing="column"),
    Rule(pattern="down", placing="row"),
]


def made(kind: str) -> nn.Module:
    torch.manual_seed(4)
    nets = {"u-net": UNet3d, "resnet": ResNet, "mlp": Mlp}
    return nets[kind]().double()


def batch(kind: str, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Five samples, which divide over no layout."""
    torch.manual_seed(step)
    if kind == "u-net":
        x = torch.randn(5, 1, 8, 8, 4, dtype=torch.float64)
        return x, torch.randint(0, 3, (5, 8, 8, 4))
    if kind == "resnet":
        return torch.randn(5, 3, 32, 30, dtype=torch.float64), torch.arange(5)
    return torch.randn(5, 6, dtype=torch.float64), torch.arange(5)


# The lines that a person adds are those with `parallel`.


def train(kind: str) -> tuple[list[float], nn.Module]:
    net = made(kind)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        x, y = batch(kind, step)
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, net


def train_parallel(kind: str, ranks: Any) -> tuple[list[float], nn.Module]:
    net = made(kind)
    parallel = parallelize(net, ranks, **options(kind))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        x, y = batch(kind, step)
        loss = parallel.step(lambda x, y: functional.cross_entropy(net(x), y), x, y)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return losses, net


def options(kind: str) -> dict[str, Any]:
    return {
        "example": (batch(kind, 0)[0],),
        "rules": RULES,
        "targets_first": 1 if kind == "u-net" else None,
    }


def weights(net: nn.Module) -> dict[str, Any]:
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).numpy()
        for name, value in net.state_dict().items()
        if not value.is_meta
    }


#: Batch norm under dp norms each replica's samples, so the ResNet runs without dp.
RUNS = {
    2: [
        ("u-net", Layout(dp=2)),
        ("u-net", Layout(fsdp=2)),
        ("u-net", Layout(sx=2)),
        ("u-net", Layout(pp=2, num_microbatches=2)),
        ("resnet", Layout(sy=2)),
        ("resnet", Layout(pp=2)),
        ("mlp", Layout(tp=2)),
    ],
    4: [
        ("u-net", Layout(dp=2, sx=2)),
        ("u-net", Layout(fsdp=2, sy=2)),
        ("u-net", Layout(dp=2, pp=2)),
        ("u-net", Layout(dp=2, fsdp=2)),
        ("mlp", Layout(dp=2, tp=2)),
    ],
}
CASES = [(ranks, index) for ranks in RUNS for index in range(len(RUNS[ranks]))]


def all_runs(place: Place) -> list[Any]:
    found = []
    for kind, layout in RUNS[place.group.world_size]:
        try:
            losses, net = train_parallel(kind, place.group.ranks(layout))
        except Exception as error:
            error.add_note(f"{kind} over {layout}")
            raise
        found.append((losses, weights(net)))
    return found


@pytest.fixture(scope="module")
def runs() -> dict[int, list[Any]]:
    return {ranks: run_ranks(all_runs, num_ranks=ranks) for ranks in RUNS}


@pytest.mark.parametrize(
    ("ranks", "index"),
    CASES,
    ids=[f"{RUNS[r][i][0]}, {RUNS[r][i][1]}" for r, i in CASES],
)
def test_own_module_trains_as_one_process(
    runs: dict[int, list[Any]], ranks: int, index: int
) -> None:
    kind, _ = RUNS[ranks][index]
    expected, net = train(kind)
    seen = set()

    for losses, found in (result[index] for result in runs[ranks]):
        # Double precision over three steps of momentum.
        assert losses == pytest.approx(expected, abs=1e-10)
        seen |= set(found)
        for name, value in found.items():
            assert abs(value - net.state_dict()[name].numpy()).max() < 1e-9, name
    assert seen == set(net.state_dict())


def test_at_most_five_lines_change() -> None:
    before = inspect.getsource(train).splitlines()
    after = inspect.getsource(train_parallel).splitlines()

    added = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    # The signature, parallelize, the optimizer's parameters, the step, its loss.
    assert len(added) <= 5, added


def refusals(place: Place) -> list[str]:
    tries = [
        (Layout(pp=2, sx=2), {}),
        (Layout(cp=4), {}),
        (Layout(dp=2, tp=2), {}),
    ]
    said = []
    for layout, options in tries:
        try:
            parallelize(made("mlp"), place.group.ranks(layout), **options)
        except LayoutError as error:
            said.append(error.message)
    parallel = parallelize(made("mlp"), place.group.ranks(Layout(dp=4)))
    try:
        parallel.step(lambda x, y: x.sum(), torch.zeros(3, 6), torch.zeros(3))
    except LayoutError as error:
        said.append(error.message)
    return said


def test_what_does_not_run_is_refused_before_anything_is_sent() -> None:
    assert run_ranks(refusals, num_ranks=4)[0] == [
        "a module of one's own cannot be run over pp 2 x sx 2",
        "a module of one's own cannot be run over cp 4",
        "tp 2 of a module of one's own needs rules",
        "3 samples for 4 data ranks of 1 micro-batches",
    ]
