"""Layers over cut extents equal the whole, gradients too, with the bytes of the halos."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from workbench.layout import Axis, Layout
from workbench.strategies import spatial
from workbench.testing.ranks import Place, run_ranks

Sizes = dict[Axis, tuple[int, ...]]

#: By number of ranks: a layout, and uneven extents of each cut dim (X 11, Y 9).
LAYOUTS: dict[int, list[tuple[str, Layout, Sizes]]] = {
    2: [
        ("x", Layout(sx=2), {Axis.SX: (7, 4)}),
        ("y", Layout(sy=2), {Axis.SY: (4, 5)}),
    ],
    4: [
        ("x by 4", Layout(sx=4), {Axis.SX: (5, 1, 0, 5)}),
        ("x and y", Layout(sx=2, sy=2), {Axis.SX: (6, 5), Axis.SY: (3, 6)}),
    ],
}
EXTENTS = (11, 9, 4)


def conv(dims: int, **options: Any) -> Callable[[], nn.Module]:
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
    return lambda: kind(2, 4, **options)


#: Number of dims, and a layer.
LAYERS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "conv1d": (1, conv(1, kernel_size=3, padding=1)),
    "conv2d": (2, conv(2, kernel_size=3, padding=1)),
    "conv3d": (3, conv(3, kernel_size=3, padding=1)),
    "conv without padding": (2, conv(2, kernel_size=3)),
    "conv same": (2, conv(2, kernel_size=5, padding="same")),
    "conv even kernel": (2, conv(2, kernel_size=4, padding=1)),
    "conv strided": (3, conv(3, kernel_size=3, stride=2, padding=1)),
    "conv 7 by 2": (2, conv(2, kernel_size=7, stride=2, padding=3)),
    "conv dilated": (2, conv(2, kernel_size=3, padding=2, dilation=2)),
    "conv strided dilated": (
        2,
        conv(2, kernel_size=3, stride=3, padding=2, dilation=2),
    ),
    "conv grouped": (2, conv(2, kernel_size=3, padding=1, groups=2)),
    "conv 1x1": (2, conv(2, kernel_size=1)),
    "conv 1x1 strided": (2, conv(2, kernel_size=1, stride=2)),
    "max pool": (3, lambda: nn.MaxPool3d(2)),
    "max pool overlapping": (2, lambda: nn.MaxPool2d(3, stride=2, padding=1)),
    "average pool": (2, lambda: nn.AvgPool2d(3, stride=2, padding=1)),
    "transposed": (3, lambda: nn.ConvTranspose3d(2, 3, 2, stride=2)),
    "transposed 3": (
        2,
        lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1),
    ),
    "transposed 4": (2, lambda: nn.ConvTranspose2d(2, 3, 4, stride=2, padding=1)),
    "transposed wide": (2, lambda: nn.ConvTranspose2d(2, 3, 5, padding=2, dilation=1)),
    "transposed gaps": (2, lambda: nn.ConvTranspose2d(2, 3, 1, stride=2)),
    "batch norm": (2, lambda: nn.BatchNorm2d(2)),
    "batch norm evaluated": (2, lambda: nn.BatchNorm2d(2).eval()),
    "instance norm": (3, lambda: nn.InstanceNorm3d(2, affine=True)),
    "group norm": (2, lambda: nn.GroupNorm(2, 2)),
    "upsample": (2, lambda: nn.Upsample(scale_factor=2)),
    "global pool": (2, lambda: nn.AdaptiveAvgPool2d(1)),
    "mean of extents": (2, lambda: Mean()),
}


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((1, 2))


def inputs(dims: int, channels: int = 2) -> torch.Tensor:
    torch.manual_seed(dims)
    return torch.randn(2, channels, *EXTENTS[:dims], dtype=torch.float64)


def made(layer: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return layer().double()


def gaps(
    place: Place,
    layout: Layout,
    sizes: Sizes,
    case: tuple[int, Callable[[], nn.Module]],
    overlap: bool,
) -> dict[str, float]:
    """Gaps of output, input gradient, parameter gradients and buffers."""
    dims, layer = case
    mesh = place.group.ranks(layout).mesh
    x = inputs(dims)
    serial, module = made(layer), made(layer)
    x_whole = x.clone().requires_grad_()
    expected = serial(x_whole)
    expected.sin().sum().backward()
    x_split = x.clone().requires_grad_()
    split = spatial.cut(x_split, mesh, sizes=sizes, overlap=overlap)
    y = module(split)
    gathered = spatial.whole(y) if isinstance(y, spatial.SpatialTensor) else y
    found = {"output": _gap(gathered, expected)}
    # Every rank holds the whole objective, hence the average below.
    gathered.sin().sum().backward()
    groups = spatial.spatial_groups(mesh)
    spatial.average_gradients([*module.parameters()], groups)
    assert x_split.grad is not None
    for group in groups:
        torch.distributed.all_reduce(x_split.grad, group=group)
        x_split.grad /= group.size()
    assert x_whole.grad is not None
    found["input"] = _gap(x_split.grad, x_whole.grad)
    for name, parameter in module.named_parameters():
        wanted = serial.get_parameter(name).grad
        assert parameter.grad is not None
        assert wanted is not None
        found[name] = _gap(parameter.grad, wanted)
    for name, buffer in module.named_buffers():
        found[name] = _gap(buffer, serial.get_buffer(name))
    return found


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    assert one.shape == other.shape, f"{one.shape} is not {other.shape}"
    return (one - other).abs().max().item()


def all_layers(place: Place) -> dict[tuple[str, str], dict[str, float]]:
    found = {}
    for label, layout, sizes in LAYOUTS[place.group.world_size]:
        for name, case in LAYERS.items():
            # A dim for each cut.
            if case[0] < (2 if layout.sy > 1 else 1):
                continue
            for overlap in (True, False):
                try:
                    found[f"{label} {overlap}", name] = gaps(
                        place, layout, sizes, case, overlap
                    )
                except Exception as error:
                    error.add_note(f"{name} cut along {label}")
                    raise
    return found


@pytest.fixture(scope="module", params=[2, 4])
def results(request: pytest.FixtureRequest) -> list[Any]:
    return run_ranks(all_layers, num_ranks=request.param)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_serial(results: list[Any], name: str) -> None:
    for result in results:
        cases = {label: value for (label, n), value in result.items() if n == name}
        assert cases
        for label, found in cases.items():
            # Double precision sums of up to some hundred terms.
            assert max(found.values()) < 1e-11, (label, found)
