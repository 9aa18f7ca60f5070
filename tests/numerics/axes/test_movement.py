"""Every movement primitive passes the adjoint test and sends what its boxes say."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.strategies import movement
from workbench.strategies.movement import Partition, sent_elements
from workbench.testing.ranks import Place, run_ranks

#: By group size: uneven extents of a dim of 11, one rank with nothing.
UNEVEN = {2: (7, 4), 4: (5, 0, 4, 2)}
WHOLE = (3, 11, 2)

Operator = Callable[[torch.Tensor], torch.Tensor]
#: Operator, shape of its input on this rank.
Case = tuple[Operator, tuple[int, ...]]


def cases(group: dist.ProcessGroup) -> dict[str, Case]:
    rank, size = group.rank(), group.size()
    sizes = UNEVEN[size]
    root = size - 1
    cut = Partition.cut(WHOLE, 1, sizes)
    first_dim = Partition.cut(WHOLE, 0, movement.balanced_sizes(3, size))
    grid = Partition.grid(WHOLE, (1, 2, size // 2))
    piece = cut.shape(rank)
    only_root = WHOLE if rank == root else (0, 0, 0)
    along: dict[str, Any] = {"dim": 1, "sizes": sizes, "group": group}
    at_root: dict[str, Any] = {"shape": WHOLE, "root": root, **along}
    return {
        "broadcast": (
            lambda x: movement.broadcast(x, shape=WHOLE, group=group, root=root),
            only_root,
        ),
        "sum_reduce": (
            lambda x: movement.sum_reduce(x, group=group, root=root),
            WHOLE,
        ),
        "all_sum_reduce": (lambda x: movement.all_sum_reduce(x, group=group), WHOLE),
        "all_gather": (lambda x: movement.all_gather(x, **along), piece),
        "reduce_scatter": (lambda x: movement.reduce_scatter(x, **along), WHOLE),
        "scatter": (lambda x: movement.scatter(x, **at_root), only_root),
        "gather": (lambda x: movement.gather(x, **at_root), piece),
        "repartition": (
            lambda x: movement.repartition(x, cut, first_dim, group=group),
            piece,
        ),
        "repartition to a grid": (
            lambda x: movement.repartition(x, cut, grid, group=group),
            piece,
        ),
        "halo": (
            lambda x: movement.halo_exchange(x, before=1, after=1, **along),
            piece,
        ),
        "halo, one side": (
            lambda x: movement.halo_exchange(x, before=2, after=0, **along),
            piece,
        ),
        "halo beyond neighbours": (
            lambda x: movement.halo_exchange(x, before=5, after=6, **along),
            piece,
        ),
    }


NAMES = (
    "broadcast",
    "sum_reduce",
    "all_sum_reduce",
    "all_gather",
    "reduce_scatter",
    "scatter",
    "gather",
    "repartition",
    "repartition to a grid",
    "halo",
    "halo, one side",
    "halo beyond neighbours",
)


def total(value: torch.Tensor, group: dist.ProcessGroup) -> float:
    """The inner product's sum over ranks, in double precision."""
    summed = value.double().reshape(1)
    dist.all_reduce(summed, group=group)
    return summed.item()


def adjoint_gap(case: Case, dtype: torch.dtype, group: dist.ProcessGroup) -> float:
    """|<Fx, y> - <x, F*y>| over the product of the norms."""
    operator, shape = case
    torch.manual_seed(7 + group.rank())
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    fx = operator(x)
    y = torch.randn_like(fx)
    (fy,) = torch.autograd.grad(fx, x, y)
    left = total((fx.detach() * y).sum(), group)
    right = total((x.detach() * fy).sum(), group)
    scale = math.sqrt(
        total(fx.detach().square().sum(), group) * total(y.square().sum(), group)
    )
    return abs(left - right) / scale


def second_derivative_gap(case: Case, group: dist.ProcessGroup) -> float:
    """F is linear, so the derivative of F* by its argument is F again."""
    operator, shape = case
    torch.manual_seed(7 + group.rank())
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    fx = operator(x)
    y = torch.randn_like(fx).requires_grad_()
    (fy,) = torch.autograd.grad(fx, x, y, create_graph=True)
    direction = torch.randn_like(fy)
    (again,) = torch.autograd.grad(fy, y, direction)
    expected = operator(direction)
    return (again - expected).abs().sum().item()


def all_gaps(place: Place) -> dict[str, tuple[float, float, float]]:
    size = place.group.world_size
    group = place.group.ranks(Layout(dp=size)).mesh.get_group()
    return {
        name: (
            adjoint_gap(case, torch.float32, group),
            adjoint_gap(case, torch.float64, group),
            second_derivative_gap(case, group),
        )
        for name, case in cases(group).items()
    }


@pytest.fixture(scope="module", params=[2, 4])
def gaps(request: pytest.FixtureRequest) -> dict[str, tuple[float, float, float]]:
    results = run_ranks(all_gaps, num_ranks=request.param)
    return {name: max(result[name] for result in results) for name in results[0]}


@pytest.mark.parametrize("name", NAMES)
def test_adjoint(gaps: dict[str, tuple[float, float, float]], name: str) -> None:
    single, double, _ = gaps[name]

    # The bounds: rounding of a sum of some 100 products.
    assert single < 1e-5
    assert double < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_twice_differentiable(
    gaps: dict[str, tuple[float, float, float]], name: str
) -> None:
    # Order of the sums over ranks may differ: a few units in the last place.
    assert gaps[name][2] < 1e-13


def gradcheck_all(place: Place) -> dict[str, float]:
    """Central differences of sum over ranks of g(F(x)), entry by entry."""
    group = place.group.ranks(Layout(dp=2)).mesh.get_group()
    worst = {}
    for name, (operator, shape) in cases(group).items():
        torch.manual_seed(place.rank)
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        objective = operator(x).sin().sum()
        (gradient,) = torch.autograd.grad(objective, x)
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
        dist.all_gather(counts, torch.tensor([x.numel()]), group=group)
        gap = 0.0
        for owner, count in enumerate(counts):
            for index in range(0, int(count), 5):
                sides = []
                for sign in (1, -1):
                    moved = x.detach().clone().reshape(-1)
                    if owner == place.rank:
                        moved[index] += sign * 1e-6
                    value = operator(moved.reshape(shape)).sin().sum()
                    sides.append(total(value, group))
                if owner == place.rank:
                    slope = (sides[0] - sides[1]) / 2e-6
                    gap = max(gap, abs(slope - gradient.reshape(-1)[index].item()))
        worst[name] = gap
    return worst


def test_gradcheck_over_ranks() -> None:
    for result in run_ranks(gradcheck_all):
        assert set(result) == set(NAMES)
        # Central differences with a step of 1e-6 on values of order 10.
        assert max(result.values()) < 1e-7


def counted(place: Place) -> dict[str, tuple[int, ...]]:
    """Sent bytes forward and backward of one call, and of its closed form."""
    group = place.group.ranks(Layout(dp=4)).mesh.get_group()
    rank = group.rank()
    cut = Partition.cut(WHOLE, 1, UNEVEN[4])
    targets = {
        "repartition": Partition.cut(WHOLE, 0, (1, 1, 1, 0)),
        "gather": Partition.at_root(WHOLE, 2, 4),
        "halo": cut.widened(1, 1, 2, extent=11),
    }
    found = {}
    for name, target in targets.items():
        transport = "messages" if name == "halo" else "all_to_all"
        op = "send" if name == "halo" else "all_to_all"
        x = torch.zeros(cut.shape(rank), requires_grad=True)
        with place.group.phase(f"{name} forward"):
            y = movement.move(x, cut, target, group=group, transport=transport)  # type: ignore[arg-type]
        with place.group.phase(f"{name} backward"):
            y.sum().backward()
        table = place.group.accounting.snapshot()
        sent = [
            table[key].sent_bytes
            if (key := (f"{name} {way}", op, "dp")) in table
            else 0
            for way in ("forward", "backward")
        ]
        found[name] = (
            *sent,
            4 * sent_elements(cut, target, rank),
            4 * sent_elements(target, cut, rank),
        )
    return found


def test_counted_bytes_equal_the_closed_form() -> None:
    results = run_ranks(counted, num_ranks=4)

    for result in results:
        for name, (forward, backward, formula, adjoint_formula) in result.items():
            assert (forward, backward) == (formula, adjoint_formula), name
    assert sum(result["halo"][0] for result in results) > 0


def collective_bytes(place: Place) -> dict[tuple[str, str], tuple[int, int]]:
    group = place.group.ranks(Layout(dp=4)).mesh.get_group()
    for name, (operator, shape) in cases(group).items():
        x = torch.zeros(shape, requires_grad=True)
        with place.group.phase(name):
            operator(x).sum().backward()
    return {
        (phase, op): (traffic.count, traffic.payload_bytes)
        for (phase, op, _), traffic in place.group.accounting.snapshot().items()
    }


def test_collectives_carry_the_whole_or_padded_payload() -> None:
    whole = 4 * math.prod(WHOLE)
    padded = 4 * 4 * 5 * 3 * 2  # four ranks, the largest piece has 5 of 11

    for table in run_ranks(collective_bytes, num_ranks=4):
        for name in ("broadcast", "sum_reduce"):
            assert table[name, "broadcast"] == table[name, "reduce"] == (1, whole)
        assert table["all_sum_reduce", "all_reduce"] == (2, whole * 2)
        for name in ("all_gather", "reduce_scatter"):
            for op in ("all_gather", "reduce_scatter"):
                assert table[name, op] == (1, padded)


def wrong_shape(place: Place) -> str:
    group = place.group.ranks(Layout(dp=2)).mesh.get_group()
    cut = Partition.cut(WHOLE, 1, UNEVEN[2])
    try:
        movement.move(torch.zeros(3, 11, 2), cut, cut, group=group)
    except LayoutError as error:
        return str(error)
    return ""


def test_a_tensor_that_is_not_the_box_is_refused_before_anything_is_sent() -> None:
    assert run_ranks(wrong_shape) == [
        "rank 0 brings shape (3, 11, 2), its box holds (3, 7, 2)",
        "rank 1 brings shape (3, 11, 2), its box holds (3, 4, 2)",
    ]


def test_sizes_that_do_not_add_up_are_refused_with_sizes_that_do() -> None:
    with pytest.raises(LayoutError, match=r"add up to 9, dim 1 has 11") as caught:
        Partition.cut(WHOLE, 1, (5, 4))

    assert caught.value.hint == "e.g. (6, 5)"
