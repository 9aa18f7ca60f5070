"""The net that trains is the model that was planned: names, shapes, saved tensors."""

import pytest
import torch
import torch.nn.functional as F

from workbench.layout import Layout
from workbench.model import model
from workbench.planner.activations import saved_bytes
from workbench.planner.case import case_of
from workbench.planner.numbers import model_numbers
from workbench.planner.profiles import profile
from workbench.strategies.nets import build, materialize

MODELS = {
    "gpt": model("gpt", num_layers=2),
    "gpt tied": model("gpt", num_layers=1, tied=True),
    "llama": model("llama", num_layers=2),
    "llama grouped": model("llama", num_layers=2, num_kv_heads=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameter_names_and_shapes_are_the_specs(name):
    with torch.device("meta"):
        net = build(MODELS[name])

    in_net = [(n, tuple(p.shape)) for n, p in net.named_parameters()]

    assert in_net == [(n, p.shape) for n, p in MODELS[name].named_parameters()]


def kept_by_autograd(spec, batch: int) -> int:
    """Return bytes of the storages that one forward keeps, parameters left out."""
    with torch.device("meta"):
        net = build(spec)
    materialize(net, torch.device("cpu"), seed=0)
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens, targets = torch.zeros(2, batch, spec.tokens_per_sample, dtype=torch.int64)
    tokens, targets = tokens.clone(), targets.clone()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        F.cross_entropy(net(tokens).flatten(0, 1), targets.flatten())
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_autograd_keeps_what_the_plan_counts(name, batch):
    spec = MODELS[name]
    numbers = model_numbers(spec, profile("workbench"))
    case = case_of(Layout(), global_batch=batch)

    planned = sum(b.repeat * saved_bytes(numbers, b, case) for b in numbers.blocks)

    # The loss keeps one more number: the total weight of its targets, 4 bytes.
    assert kept_by_autograd(spec, batch) == planned + 4
