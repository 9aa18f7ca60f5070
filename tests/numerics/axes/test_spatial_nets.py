"""Whole nets run split as they are; traffic, overlap, and what is refused."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional

from tests.numerics.axes.spatial_nets import ResNet, UNet3d
from workbench.errors import LayoutError
from workbench.layout import Axis, Layout
from workbench.strategies import spatial
from workbench.strategies.movement import move
from workbench.strategies.spatial import halo, sliding
from workbench.testing.ranks import Place, run_ranks

BATCH = 4


def made(kind: str) -> nn.Module:
    torch.manual_seed(4)
    nets = {
        "unet": lambda: UNet3d(),
        "unet batch norm": lambda: UNet3d(nn.BatchNorm3d),
        "resnet": lambda: ResNet(),
    }
    return nets[kind]().double()


def data(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(8)
    if kind == "resnet":
        return torch.randn(BATCH, 3, 37, 30, dtype=torch.float64), torch.arange(BATCH)
    x = torch.randn(BATCH, 1, 12, 8, 8, dtype=torch.float64)
    return x, torch.randint(0, 3, (BATCH, 12, 8, 8))


def losses(kind: str, steps: int) -> tuple[list[float], dict[str, Any]]:
    """Serial training: losses and final weights."""
    net, (x, y) = made(kind), data(kind)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history, arrays(net)


def arrays(net: nn.Module) -> dict[str, Any]:
    """Weights and buffers as arrays, which pass through a pipe by value."""
    return {name: value.numpy() for name, value in net.state_dict().items()}


def split_losses(
    place: Place, kind: str, layout: Layout, steps: int
) -> tuple[list[float], dict[str, Any]]:
    """The same with each sample cut over the spatial axes, samples over dp."""
    mesh = place.group.ranks(layout).mesh
    net, (x, y) = made(kind), data(kind)
    groups = list(spatial.spatial_groups(mesh))
    if layout.dp > 1:
        groups.append(mesh.get_group("dp"))
        x, y = (t.chunk(layout.dp)[mesh.get_local_rank("dp")] for t in (x, y))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    # Uneven: 12 as 8 and 4 halves twice; the other extents as they fall.
    sizes = {Axis.SX: (8, 4)} if kind != "resnet" and layout.sx == 2 else None
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        target: Any = y
        if kind != "resnet":
            target = spatial.cut(y, mesh, first=1, sizes=sizes)
        loss = functional.cross_entropy(net(spatial.cut(x, mesh, sizes=sizes)), target)
        loss.backward()
        spatial.average_gradients(net.parameters(), groups)
        optimizer.step()
        history.append(loss.item())
    return history, arrays(net)


#: Batch norm under dp norms each replica's samples, hence the net without it there.
RUNS = {
    2: [
        ("unet", Layout(sx=2)),
        ("unet", Layout(sz=2)),
        ("unet batch norm", Layout(sx=2)),
        ("resnet", Layout(sx=2)),
        ("resnet", Layout(sy=2)),
    ],
    4: [
        ("unet", Layout(sx=2, sy=2)),
        ("unet", Layout(dp=2, sx=2)),
        ("resnet", Layout(sx=2, sy=2)),
        ("resnet", Layout(sx=4)),
    ],
}
CASES = [(ranks, index) for ranks in RUNS for index in range(len(RUNS[ranks]))]
STEPS = 4


def all_runs(place: Place) -> list[Any]:
    return [
        split_losses(place, kind, layout, STEPS)
        for kind, layout in RUNS[place.group.world_size]
    ]


@pytest.fixture(scope="module")
def runs() -> dict[int, list[Any]]:
    return {ranks: run_ranks(all_runs, num_ranks=ranks) for ranks in RUNS}


@pytest.mark.parametrize(
    ("ranks", "index"),
    CASES,
    ids=[f"{RUNS[r][i][0]}, {RUNS[r][i][1]}" for r, i in CASES],
)
def test_net_trains_as_serial(
    runs: dict[int, list[Any]], ranks: int, index: int
) -> None:
    kind, layout = RUNS[ranks][index]
    expected, weights = losses(kind, STEPS)

    for result in runs[ranks]:
        history, state = result[index]
        if layout.dp == 1:
            # Double precision over four steps of momentum.
            assert history == pytest.approx(expected, abs=1e-9)
        for name, value in weights.items():
            assert abs(state[name] - value).max() < 1e-8, name


def fsdp_gap(place: Place) -> float:
    """fully_shard over fsdp beside sx: gradients against serial."""
    mesh = place.group.ranks(Layout(fsdp=2, sx=2)).mesh
    net, (x, y) = made("unet"), data("unet")
    for child in net.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh["fsdp"])
    fully_shard(net, mesh=mesh["fsdp"])
    part = mesh.get_local_rank("fsdp")
    mine, target = x.chunk(2)[part], y.chunk(2)[part]
    logits = net(spatial.cut(mine, mesh))
    functional.cross_entropy(logits, spatial.cut(target, mesh, first=1)).backward()
    for parameter in net.parameters():
        # The shards' gradients, averaged over the spatial ranks.
        assert isinstance(parameter.grad, DTensor)
        shard = parameter.grad.to_local()
        torch.distributed.all_reduce(shard, group=mesh.get_group("sx"))
        shard /= 2
    serial = made("unet")
    functional.cross_entropy(serial(x), y).backward()
    gap = 0.0
    for name, parameter in net.named_parameters():
        assert isinstance(parameter.grad, DTensor)
        wanted = serial.get_parameter(name).grad
        assert wanted is not None
        gap = max(gap, (parameter.grad.full_tensor() - wanted).abs().max().item())
    return gap


def test_fsdp_beside_a_spatial_axis_equals_serial() -> None:
    assert max(run_ranks(fsdp_gap, num_ranks=4)) < 1e-12


# Traffic --------------------------------------------------------------------------

CHANNELS, FILTERS = 3, 5
SHAPE = (2, CHANNELS, 8, 6, 4)


def conv_traffic(place: Place, layout: Layout) -> dict[Any, Any]:
    mesh = place.group.ranks(layout).mesh
    torch.manual_seed(0)
    net = nn.Conv3d(CHANNELS, FILTERS, 3, padding=1)
    norm = nn.BatchNorm3d(FILTERS)
    x = spatial.cut(torch.randn(SHAPE, requires_grad=True), mesh)
    with place.group.phase("conv forward"):
        y = net(x)
    with place.group.phase("norm forward"):
        z: Any = norm(y)
    with place.group.phase("norm backward"):
        (slope,) = torch.autograd.grad(z.local.sin().sum(), y.local, retain_graph=True)
    with place.group.phase("conv backward"):
        y.local.backward(slope)
    with place.group.phase("average"):
        spatial.average_gradients(net.parameters(), spatial.spatial_groups(mesh))
    return {
        key: (traffic.count, traffic.payload_bytes)
        for key, traffic in place.group.accounting.snapshot().items()
    }


def test_traffic_of_a_split_convolution_is_the_closed_form() -> None:
    """Faces of O planes; the second axis' widened by the first's."""
    layout = Layout(sx=2, sy=2)
    batch, _, *extents = SHAPE
    x, y, z = extents[0] // 2, extents[1] // 2, extents[2]
    face_x = 4 * batch * CHANNELS * y * z
    face_y = 4 * batch * CHANNELS * (x + 1) * z
    weights = 4 * (FILTERS * CHANNELS * 27 + FILTERS)
    vector = 4 * FILTERS

    for table in run_ranks(conv_traffic, layout, num_ranks=4):
        assert {key: table[key] for key in table if key[2] != "world"} == {
            ("conv forward", "send", "sx"): (1, face_x),
            ("conv forward", "send", "sy"): (1, face_y),
            ("conv backward", "send", "sx"): (1, face_x),
            ("conv backward", "send", "sy"): (1, face_y),
            **{
                (f"norm {way}", "all_reduce", axis): (count, 2 * vector)
                for way, count in (("forward", 2), ("backward", 1))
                for axis in ("sx", "sy")
            },
            ("average", "all_reduce", "sx"): (1, weights),
            ("average", "all_reduce", "sy"): (1, weights),
        }


def test_ranks_inside_have_two_neighbours() -> None:
    face = 4 * math.prod(SHAPE) // SHAPE[2]

    tables = run_ranks(conv_traffic, Layout(sx=4), num_ranks=4)

    counts = [table["conv forward", "send", "sx"] for table in tables]
    assert counts == [(1, face), (2, 2 * face), (2, 2 * face), (1, face)]


# Overlap --------------------------------------------------------------------------


def trace_of_a_convolution(place: Place, overlap: bool) -> list[str]:
    """The order in which messages are issued, awaited, and outputs computed."""
    trace: list[str] = []

    class Traced(halo.Messages):
        def __init__(self, *args: Any) -> None:
            trace.append("issue")
            super().__init__(*args)

        def wait(self) -> Any:
            trace.append("wait")
            return super().wait()

    halo.Messages = Traced  # type: ignore[misc]
    move.__globals__["Messages"] = Traced
    plain = torch.conv2d

    def traced_conv(x: torch.Tensor, *args: Any) -> torch.Tensor:
        trace.append(f"compute {x.shape[2]}")
        return plain(x, *args)

    sliding._CONVOLUTIONS[2] = traced_conv
    mesh = place.group.ranks(Layout(sx=2)).mesh
    x = torch.randn(1, 2, 16, 4, requires_grad=True)
    y: Any = nn.Conv2d(2, 2, 3, padding=1)(spatial.cut(x, mesh, overlap=overlap))
    trace.append("backward")
    y.local.sum().backward()
    return trace


def test_interior_is_computed_while_halos_travel() -> None:
    first, second = run_ranks(trace_of_a_convolution, True)

    # Eight rows and a border make nine, of which seven outputs need no halo.
    assert first == [
        "issue",
        "compute 9",
        "wait",
        "compute 3",
        "backward",
        "issue",
        "wait",
    ]
    assert second == first


def test_without_overlap_all_is_computed_after_the_halos() -> None:
    for trace in run_ranks(trace_of_a_convolution, False):
        assert trace == ["issue", "wait", "compute 10", "backward", "issue", "wait"]


# What is refused ------------------------------------------------------------------


def refusals(place: Place) -> list[str]:
    mesh = place.group.ranks(Layout(sx=2)).mesh
    x: Any = spatial.cut(torch.zeros(1, 2, 6, 4), mesh)
    tries = [
        lambda: x.flatten(1),
        lambda: torch.cat([x, x], dim=2),
        lambda: nn.MaxPool2d(2, ceil_mode=True)(x),
        lambda: functional.mse_loss(x, torch.zeros(1, 2, 6, 4)),
        lambda: x + spatial.cut(torch.zeros(1, 2, 7, 4), mesh),
        lambda: x + torch.zeros(6, 4),
        lambda: spatial.cut(torch.zeros(1, 2, 6), mesh, first=3),
    ]  # fmt: skip
    said = []
    for attempt in tries:
        try:
            attempt()
        except LayoutError as error:
            said.append(error.message)
        except RuntimeError as error:
            said.append(f"torch: {error}")
    return said


def test_what_needs_the_whole_is_refused_by_name() -> None:
    assert run_ranks(refusals)[0] == [
        "flatten cannot be run on a tensor that is cut over spatial axes",
        "cat along dim 2, which is cut",
        "pooling with ceil_mode=True over a split tensor",
        "predictions are cut over spatial axes, targets are not",
        "tensors whose (dim, axis, extent) are [(2, 'sx', 7)] and [(2, 'sx', 6)] do "
        "not fit",
        "torch: The size of tensor a (3) must match the size of tensor b (6) at "
        "non-singleton dimension 2",
        "the axis sx cuts dim 3, the tensor has 3",
    ]


def missing_halo(place: Place) -> float:
    """As the U-Net's run, with halos of zeros."""
    arrived = halo.Messages.wait
    halo.Messages.wait = lambda self: [  # type: ignore[method-assign]
        None if piece is None else torch.zeros_like(piece) for piece in arrived(self)
    ]
    history, _ = split_losses(place, "unet", Layout(sx=2), 1)
    expected, _ = losses("unet", 1)
    return abs(history[0] - expected[0])


def test_a_missing_halo_shows() -> None:
    assert min(run_ranks(missing_halo)) > 1e-5
