"""What a streamed net holds, measured, against the planner and against its depth."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.nn import functional

from workbench.model.presets import model
from workbench.offload.host_units import Unit
from workbench.offload.streaming import Streamed, Streaming
from workbench.offload.tiers import HostTier
from workbench.planner.offload.stream_memory import streamed_bytes
from workbench.sensors.memory import heap_bytes
from workbench.strategies import nets
from workbench.strategies.streamed import End

CPU = torch.device("cpu")
BATCH = 8


@contextmanager
def sampled(seen: list[int]) -> Iterator[None]:
    """Look at the heap all the time, since some peaks lie inside an operation."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.0005):
            seen.append(heap_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measured(num_layers: int, num_microbatches: int):
    """Return the spec, the most heap bytes of a step, and the bytes on the host."""
    spec = model(
        "gpt",
        hidden=128,
        num_layers=num_layers,
        num_heads=4,
        tokens_per_sample=128,
        vocab_size=512,
    )
    with torch.device("meta"):
        net = nets.build(spec)
    parts = {"embedding": net.embedding}
    parts |= {f"layers.{i}": layer for i, layer in enumerate(net.layers)}
    parts[""] = End(net)

    def fill(name: str):
        prefix = f"{name}." if name else ""
        return lambda part: nets.fill(part, prefix, CPU, num_layers, 0)

    seen: list[int] = []
    host = HostTier()

    def look(*_: object) -> None:
        seen.append(heap_bytes())

    how = Streaming(
        weights=host,
        states=host,
        activations=host,
        optimizer_of=lambda own: torch.optim.AdamW(own, lr=1e-3, fused=True),
    )
    for part in net.modules():
        if not list(part.children()):
            part.register_forward_hook(look)
            part.register_full_backward_pre_hook(look)
    units = [Unit(name=n, module=part, fill=fill(n)) for n, part in parts.items()]
    streamed = Streamed(units, CPU, how)
    tokens = torch.randint(512, (BATCH, 129))
    inputs = tokens[:, :-1].tensor_split(num_microbatches)
    targets = tokens[:, 1:].tensor_split(num_microbatches)

    def loss(logits: torch.Tensor, number: int) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), targets[number].flatten())

    for _ in range(2):
        # Modules and other Python objects, some 50 KB per layer streamed or not, are no
        # device's tensors: count from the step's start, and the two buffers.
        gc.collect()
        seen.clear()
        before = heap_bytes()
        with sampled(seen):
            streamed.forward_backward(inputs, loss, update=True)
            streamed.settle()
    streamed.close()
    device = max(seen) - before + streamed.window.held_bytes
    return spec, device, host.used_bytes


# Its own input is whole numbers, so the first unit has no gradient to give back.
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("num_microbatches", [1, 4])
def test_the_planner_knows_what_device_and_host_hold(num_microbatches) -> None:
    spec, device, host = measured(4, num_microbatches)

    planned = streamed_bytes(spec, num_samples=BATCH, num_microbatches=num_microbatches)

    assert host == planned.host
    # Whether the gradients of the unit before have left by the time of the peak is the
    # lanes' affair, and small temporary tensors come and go between two looks.
    assert device == pytest.approx(planned.device, rel=0.15)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_six_times_the_depth_takes_the_same_device_and_the_planned_host() -> None:
    _, shallow, _ = measured(4, 4)

    spec, deep, host = measured(24, 4)

    # Whether the gradients of the unit before have left by the time of the peak: 0.8 of
    # about 7 MB. A step's own Python objects are some KB per layer.
    assert deep == pytest.approx(shallow, rel=0.13)
    planned = streamed_bytes(spec, num_samples=BATCH, num_microbatches=4)
    assert host == planned.host
