"""Tensor parallelism: equal to the whole net, and every byte of the closed form."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.model.presets import model
from workbench.strategies import nets, tensor
from workbench.testing.ranks import Place, run_ranks

#: Vocabulary, MLP and tokens divide by no degree; four heads do.
SIZES: dict[str, Any] = {
    "hidden": 16,
    "num_layers": 2,
    "num_heads": 4,
    "ffn": 37,
    "vocab_size": 29,
    "tokens_per_sample": 7,
}
BATCH, TOKENS, HIDDEN, LAYERS = 2, 7, 16, 2


def whole_net(family: str) -> nets.Decoder:
    spec = model(family, **SIZES)
    with torch.device("meta"):
        net = nets.build(spec)
    nets.materialize(net, torch.device("cpu"), seed=3)
    with torch.no_grad():
        # Zero biases and unit norms would hide a wrong cut.
        for index, parameter in enumerate(net.parameters()):
            torch.manual_seed(index)
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return net.double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(11)
    tokens = torch.randint(0, SIZES["vocab_size"], (BATCH, TOKENS + 1))
    return tokens[:, :-1], tokens[:, 1:]


def run_split(
    place: Place, family: str, sequence: bool
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Logits, losses and gradients of one step, all made whole."""
    degree = place.group.world_size
    mesh = place.group.ranks(Layout(tp=degree, sp=sequence)).mesh
    net = whole_net(family)
    edges = tensor.split(net, tensor.DECODER_RULES, mesh, sequence=sequence)
    inputs, targets = batch()
    with place.group.phase(f"{family} {sequence} step"):
        logits = net(inputs)
        losses = tensor.split_cross_entropy(
            logits.flatten(0, 1),
            targets.flatten(),
            vocab_size=SIZES["vocab_size"],
            group=edges.group,
        )
        losses.sum().backward()
    with place.group.phase(f"{family} {sequence} partial"):
        partial = tensor.partial_parameters(net)
        tensor.sum_partial_gradients(partial, edges.group)
    whole = tensor.whole_logits(
        logits.detach(), vocab_size=SIZES["vocab_size"], group=edges.group
    )
    gradients = {}
    for name, parameter in net.named_parameters():
        assert isinstance(parameter.grad, DTensor)
        gradients[name] = parameter.grad.full_tensor()
    return whole, losses.detach(), gradients


def observed(
    place: Place, family: str, sequence: bool
) -> tuple[float, float, dict[str, float], dict[tuple[str, str], tuple[int, int]]]:
    """Largest gaps to the whole net, and what was counted."""
    logits, losses, gradients = run_split(place, family, sequence)
    net = whole_net(family)
    inputs, targets = batch()
    expected = net(inputs)
    expected_losses = functional.cross_entropy(
        expected.flatten(0, 1), targets.flatten(), reduction="none"
    )
    expected_losses.sum().backward()
    gaps = {}
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        gaps[name] = (gradients[name] - parameter.grad).abs().max().item()
    return (
        (logits - expected).abs().max().item(),
        (losses - expected_losses).abs().max().item(),
        gaps,
        counted(place, f"{family} {sequence} "),
    )


def counted(place: Place, prefix: str) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (phase.removeprefix(prefix), op): (traffic.count, traffic.payload_bytes)
        for (phase, op, axis), traffic in place.group.accounting.snapshot().items()
        if axis == "tp" and phase.startswith(prefix)
    }


CASES = [(family, seq) for family in ("gpt", "llama") for seq in (False, True)]


def all_cases(place: Place) -> list[Any]:
    return [observed(place, *case) for case in CASES]


@pytest.fixture(scope="module", params=[2, 4])
def results(request: pytest.FixtureRequest) -> list[Any]:
    return run_ranks(all_cases, num_ranks=request.param)


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_logits_losses_and_gradients_equal_the_whole_net(
    results: list[Any], index: int
) -> None:
    for result in results:
        logits_gap, losses_gap, gaps, _ = result[index]
        # Double precision: sums in another order, nothing else.
        assert logits_gap < 1e-12
        assert losses_gap < 1e-12
        assert max(gaps.values()) < 1e-12, gaps


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(case) for case in CASES])
def test_traffic_is_the_closed_form(results: list[Any], index: int) -> None:
    family, sequence = CASES[index]
    degree = len(results)
    tokens = BATCH * TOKENS
    activation = 8 * tokens * HIDDEN
    scalars = 8 * 3 * tokens

    if not sequence:
        expected = {
            # Forward: embedding and two a layer; backward: two a layer and the head.
            ("step", "all_reduce"): (
                2 * (2 * LAYERS + 1) + 2,
                2 * (2 * LAYERS + 1) * activation + scalars,
            ),
        }
    else:
        padded = 8 * BATCH * HIDDEN * degree * math.ceil(TOKENS / degree)
        partial_elements = {
            "gpt": LAYERS * (4 + 2) * HIDDEN + 2 * HIDDEN,
            "llama": LAYERS * 2 * HIDDEN + HIDDEN,
        }[family]
        expected = {
            ("step", "all_reduce"): (1 + 2, activation + scalars),
            # Forward: two a layer and the head; backward: two a layer and the cut.
            ("step", "all_gather"): (4 * LAYERS + 2, (4 * LAYERS + 2) * padded),
            ("step", "reduce_scatter"): (4 * LAYERS + 1, (4 * LAYERS + 1) * padded),
            ("partial", "all_reduce"): (1, 8 * partial_elements),
        }

    for result in results:
        assert result[index][-1] == expected


def shares(place: Place) -> dict[str, tuple[int, ...]]:
    mesh = place.group.ranks(Layout(tp=2)).mesh
    net = whole_net("gpt")
    tensor.split(net, tensor.DECODER_RULES, mesh, sequence=False)
    return {
        name: tuple(tensor.local(parameter).shape)
        for name, parameter in net.named_parameters()
    }


def test_names_stay_and_each_rank_holds_its_share() -> None:
    first, second = run_ranks(shares)

    assert list(first) == [name for name, _ in whole_net("gpt").named_parameters()]
    assert (first["layers.0.mlp.up.weight"], second["layers.0.mlp.up.weight"]) == (
        (19, 16),
        (18, 16),
    )
    assert first["layers.0.attn.qkv.weight"] == (24, 16)
    assert first["layers.0.attn.proj.weight"] == (16, 8)


def mutant(place: Place) -> float:
    """As `observed`, with the sum on leaving a region taken out."""
    tensor.Edges.leave = lambda self, x: x  # type: ignore[method-assign]
    return observed(place, "llama", False)[0]


def test_a_missing_collective_shows() -> None:
    assert min(run_ranks(mutant)) > 1e-3


class Unplaced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Bilinear(2, 2, 2)


def refused(place: Place) -> list[str]:
    mesh = place.group.ranks(Layout(tp=2)).mesh
    said = []
    for rules in ((), (tensor.Rule(pattern="mlp", placing="column"),)):
        try:
            tensor.split(copy.deepcopy(Unplaced()), rules, mesh, sequence=False)
        except LayoutError as error:
            said.append(error.message)
    return said


def test_what_cannot_be_split_is_said_by_name() -> None:
    assert run_ranks(refused)[0] == [
        "no rule says how mlp.weight lies over the axis tp",
        "mlp is a Bilinear, which cannot be placed 'column'",
    ]
