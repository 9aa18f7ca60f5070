"""Thirty steps in float32 along ep and the spatial axes equal one process (S06, S18).

The other axes' runs stand in tests/numerics/test_training.py.
"""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from tests.numerics.axes.spatial_nets import UNet3d
from workbench.layout import Axis, Layout
from workbench.strategies import spatial
from workbench.strategies.experts import MixtureOfExperts, spread
from workbench.testing.ranks import Place, run_ranks

STEPS = 30

# Experts ----------------------------------------------------------------------------

VOCABULARY, HIDDEN, TOKENS, SAMPLES = 23, 16, 12, 8


class ExpertNet(nn.Module):
    """Predicts the next token from this one, through two mixtures of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(
            MixtureOfExperts(
                hidden=HIDDEN, ffn=24, num_experts=6, top_k=2, balance_weight=0.01
            )
            for _ in range(2)
        )
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.tokens(x)
        for layer in self.layers:
            y = y + layer(functional.layer_norm(y, (HIDDEN,)))
        return self.head(y)


def expert_net() -> ExpertNet:
    torch.manual_seed(0)
    net = ExpertNet()
    with torch.no_grad():
        for parameter in net.layers.parameters():
            parameter.mul_(10)
    return net


def texts(step: int) -> torch.Tensor:
    """Sequences that count up by three, so that there is something to learn."""
    torch.manual_seed(step)
    first = torch.randint(0, VOCABULARY, (SAMPLES, 1))
    return (first + 3 * torch.arange(TOKENS + 1)) % VOCABULARY


def train_experts(
    place: Place | None, layout: Layout
) -> tuple[list[float], dict[str, Any]]:
    """Losses and final whole weights; one process without a place."""
    net = expert_net()
    groups: dict[str, Any] = {}
    if place is not None:
        mesh = place.group.ranks(layout).mesh
        groups = {axis: mesh.get_group(axis) for axis in layout.axes()}
        for layer in net.layers:
            assert isinstance(layer, MixtureOfExperts)
            spread(layer, mesh)
    shared = [p for p in net.parameters() if not isinstance(p, DTensor)]
    cut = [p for p in net.parameters() if isinstance(p, DTensor)]
    optimizers = [
        torch.optim.AdamW(some, lr=0.02, foreach=False)
        for some in (shared, cut)
        if some
    ]
    history = []
    # Uneven shares of the samples: 5 and 3 on two ranks.
    shares = {1: (8,), 2: (5, 3), 4: (3, 2, 2, 1)}[layout.num_ranks]
    for step in range(STEPS):
        text = texts(step).split(list(shares))[place.rank if place else 0]
        logits = net(text[:, :-1]).flatten(0, 1)
        summed = functional.cross_entropy(
            logits, text[:, 1:].flatten(), reduction="sum"
        )
        loss = summed / (SAMPLES * TOKENS)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        value = loss.detach()
        for group in groups.values():
            torch.distributed.all_reduce(value, group=group)
            for parameter in shared:
                torch.distributed.all_reduce(parameter.grad, group=group)
        for parameter in cut if "dp" in groups else []:
            assert isinstance(parameter.grad, DTensor)
            torch.distributed.all_reduce(parameter.grad.to_local(), group=groups["dp"])
        for optimizer in optimizers:
            optimizer.step()
        history.append(value.item())
    weights = {
        name: (value.full_tensor() if isinstance(value, DTensor) else value)
        for name, value in net.state_dict().items()
    }
    return history, {name: value.numpy() for name, value in weights.items()}


@pytest.mark.parametrize(
    "layout", [Layout(ep=2), Layout(ep=4), Layout(dp=2, ep=2)], ids=str
)
def test_experts_train_as_one_process(layout: Layout) -> None:
    expected, weights = train_experts(None, Layout())

    for history, found in run_ranks(train_experts, layout, num_ranks=layout.num_ranks):
        # float32, thirty steps of Adam: the bound of the table.
        assert history == pytest.approx(expected, abs=1e-5)
        for name, value in weights.items():
            assert abs(found[name] - value).max() < 1e-5, name
    assert expected[0] - expected[-1] > 0.5


# Space ------------------------------------------------------------------------------


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Linear(16, 24)
        self.fc2 = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.conv1(x).relu())
        x = self.pool(self.conv2(x).relu())
        return self.fc2(self.fc1(self.mean(x).flatten(1)).relu())


class Volumes(UNet3d):
    """A U-Net that marks the voxels of its samples."""


def pictures(kind: str, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of stripes by four periods; or volumes marked where positive."""
    torch.manual_seed(step)
    if kind == "lenet":
        labels = torch.arange(8) % 4
        places = torch.arange(28).float() + 7 * torch.rand(8, 1)
        waves = (places / (1 + labels[:, None])).sin()
        return (waves[:, None, :, None] + 0.1 * torch.randn(8, 1, 28, 19)), labels
    x = torch.randn(2, 1, 8, 8, 4)
    return x, (x[:, 0] > 0).long()


def train_pictures(
    place: Place | None, kind: str, layout: Layout
) -> tuple[list[float], dict[str, Any]]:
    torch.manual_seed(1)
    net: nn.Module = LeNet() if kind == "lenet" else Volumes()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    history = []
    mesh = None if place is None else place.group.ranks(layout).mesh
    for step in range(STEPS):
        x: Any
        y: Any
        x, y = pictures(kind, step)
        if mesh is not None:
            sizes = {Axis.SX: (17, 11)} if kind == "lenet" else None
            x = spatial.cut(x, mesh, sizes=sizes)
            y = y if kind == "lenet" else spatial.cut(y, mesh, first=1)
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        if mesh is not None:
            spatial.average_gradients(net.parameters(), spatial.spatial_groups(mesh))
        optimizer.step()
        history.append(loss.item())
    return history, {name: value.numpy() for name, value in net.state_dict().items()}


SPATIAL = [
    ("lenet", Layout(sx=2)),
    ("volumes", Layout(sy=2)),
    ("volumes", Layout(sz=2)),
]


@pytest.mark.parametrize(("kind", "layout"), SPATIAL, ids=str)
def test_pictures_train_as_one_process(kind: str, layout: Layout) -> None:
    expected, weights = train_pictures(None, kind, layout)

    for history, found in run_ranks(train_pictures, kind, layout):
        # float32: the bound of the table.
        assert history == pytest.approx(expected, abs=1e-5)
        for name, value in weights.items():
            assert abs(found[name] - value).max() < 1e-5, name
    assert expected[0] - expected[-1] > 0.5


# Memory -----------------------------------------------------------------------------


def kept_bytes(place: Place | None) -> int:
    """Bytes that autograd keeps for a U-Net's backward, parameters left out."""
    torch.manual_seed(1)
    net: nn.Module = UNet3d()
    x: Any = torch.randn(1, 1, 32, 16, 16)
    if place is not None:
        x = spatial.cut(x, place.group.ranks(Layout(sx=2)).mesh)
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y: Any = net(x)
    del y
    return sum(storage.nbytes() for storage in kept.values())


def test_half_the_extent_keeps_little_more_than_half() -> None:
    whole = kept_bytes(None)

    halves = run_ranks(kept_bytes)

    # What is more than half are halos and the padded copies of edges.
    assert max(halves) < 0.75 * whole
