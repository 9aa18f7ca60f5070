"""`trace` reads parameters, FLOPs and saved tensors off any module, unallocated."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from workbench.errors import ModelError
from workbench.model import Saved
from workbench.tracing import trace


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, depth: int = 3, width: int = 8, vocabulary: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Residual(width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


TOKENS = (torch.zeros(2, 16, dtype=torch.int64),)


def test_equal_layers_become_one_block_that_repeats():
    spec = trace(Stack(), TOKENS)

    assert [(b.name, b.repeat) for b in spec.blocks] == [
        ("embed", 1),
        ("layers", 3),
        ("head", 1),
    ]
    assert spec.tokens_per_sample == 16


def test_parameters_and_flops_are_the_modules_own():
    module = Stack()

    spec = trace(module, TOKENS)

    assert spec.num_parameters == sum(p.numel() for p in module.parameters())
    matrices = 3 * 2 * 8 * 32 + 8 * 32
    assert spec.forward_flops == 2 * 16 * matrices


def test_saved_tensors_are_counted_once_each_per_sample():
    layer = trace(Stack(), TOKENS).blocks[1]
    kept = {s.kind: s.num_elements for s in layer.saved}

    # LayerNorm keeps its input and two statistics a token, up its input (the norm's
    # output), ReLU its output, which is also down's input.
    assert kept["norm"] == 16 * (8 + 2)
    assert kept["up"] == 16 * 8
    assert sum(kept.values()) == 16 * (8 + 2) + 16 * 8 + 16 * 32


def test_a_tied_matrix_is_owned_once():
    module = Stack()
    module.head.weight = module.embed.weight

    spec = trace(module, TOKENS)

    assert spec.blocks[-1].parameters[0].tied_to == "embed.weight"
    assert spec.num_parameters == sum(p.numel() for p in module.parameters())


def test_a_reused_layer_owns_its_weights_in_its_first_block():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Residual(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x))

    module = Twice()

    spec = trace(module, (torch.zeros(2, 8),))

    assert [b.name for b in spec.blocks] == ["layer", "layer#2"]
    assert spec.num_parameters == sum(p.numel() for p in module.parameters())


def test_convolutions_count_two_flops_per_multiply_add():
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten())

    spec = trace(module, (torch.zeros(5, 3, 6, 6),))

    assert spec.forward_flops == 2 * 4 * 3 * 3 * 3 * 6 * 6
    assert spec.blocks[1].saved == (Saved(kind="out", num_elements=4 * 6 * 6),)


def test_attention_is_counted_in_full():
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.zeros(3, 16, 8)

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attend(x, x, x, need_weights=False)[0]

    flops = trace(Attend(), (x,)).forward_flops

    assert flops == 2 * 16 * 8 * (3 * 8 + 8) + 4 * 16 * 16 * 8


def test_a_root_parameter_is_not_lost():
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(8))
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x + self.shift)

    assert trace(Shift(), (torch.zeros(2, 8),)).num_parameters == 8 + 72


def test_a_branch_on_values_is_refused_by_name():
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if bool(x.sum() > 0) else -x

    with pytest.raises(ModelError, match="Branch cannot be traced"):
        trace(Branch(), (torch.zeros(2, 8),))


def test_inputs_of_two_batch_sizes_are_refused():
    with pytest.raises(ModelError, match=r"sizes \[2, 3\]"):
        trace(Stack(), (torch.zeros(2, 4), torch.zeros(3, 4)))


BIG = """
import resource, time, torch
from torch import nn
from workbench.tracing import trace

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(8192), nn.RMSNorm(8192)
        self.qkv, self.proj = nn.Linear(8192, 10240, bias=False), nn.Linear(8192, 8192, bias=False)
        self.gate, self.up = (nn.Linear(8192, 28672, bias=False) for _ in range(2))
        self.down = nn.Linear(28672, 8192, bias=False)

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).unflatten(-1, (80, 128)).transpose(1, 2)
        q, k, v = heads.split((64, 8, 8), dim=1)
        k, v = (t.repeat_interleave(8, dim=1) for t in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))

with torch.device("meta"):
    net = nn.Sequential(nn.Embedding(128256, 8192), *(Layer() for _ in range(80)), nn.Linear(8192, 128256, bias=False))
started = time.monotonic()
spec = trace(net, (torch.zeros(1, 8192, dtype=torch.int64),))
print(spec.num_parameters, time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_a_70b_llama_is_traced_in_under_30_s_and_2_gb():
    done = subprocess.run(
        [sys.executable, "-c", BIG], capture_output=True, text=True, check=True
    )
    parameters, seconds, peak_bytes = (float(x) for x in done.stdout.split())

    assert parameters == pytest.approx(70.55e9, rel=0.001)
    assert seconds < 30
    assert peak_bytes < 2e9
