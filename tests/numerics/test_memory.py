"""The heap peaks where the plan says, and the sampler sees it."""

import gc

import pytest
import torch

from tests.numerics.training_runs import plan_without_torch, small_corpus
from workbench.layout import Layout
from workbench.planner.contract import Plan
from workbench.sensors import MemorySampler, heap_bytes
from workbench.testing.ranks import Place, run_ranks
from workbench.training import Trainer, warm


def peak_of_training(place: Place, tiny: Plan, plan: Plan) -> int:
    """Highest live heap over the steps, less what was live before the net.

    The sampler looks ten times as often as in a session, where hundreds of steps come
    by: the top tenth lasts a tenth of a step, and a dozen steps leave no chance.
    """
    warm()
    corpus = small_corpus(plan.model.tokens_per_sample)
    ranks = place.group.ranks(plan.layout)
    # What torch allocates once per process (thread pools, workspaces) is no model's.
    Trainer(tiny, corpus, ranks).fit(2)
    gc.collect()
    before = heap_bytes()
    assert before is not None
    sampler = MemorySampler(lambda _: None, look_every_cpu_s=0.005)
    sampler.start()
    Trainer(plan, corpus, ranks).fit(12)
    sampler.stop()
    return sampler.peak_bytes - before


@pytest.mark.parametrize("layout", [Layout(dp=2), Layout(fsdp=2)], ids=["dp", "fsdp"])
def test_peak_heap_is_within_ten_percent_of_the_plan(layout: Layout) -> None:
    shape = {"hidden": 128, "num_layers": 4, "num_heads": 4, "tokens_per_sample": 128}
    tiny = plan_without_torch(layout, tokens_per_sample=128)
    plan = plan_without_torch(layout, batch=16, **shape)

    peaks = run_ranks(peak_of_training, tiny, plan)

    for planned, peak in zip(plan.memory, peaks, strict=True):
        assert peak == pytest.approx(planned.peak_bytes, rel=0.10)


def test_the_heap_follows_a_tensor() -> None:
    size = 64 * 2**20
    before = heap_bytes()
    tensor = torch.ones(size // 4)
    with_tensor = heap_bytes()
    del tensor
    after = heap_bytes()
    assert before is not None
    assert with_tensor is not None
    assert after is not None

    # Other objects may come and go beside it.
    assert with_tensor - before == pytest.approx(size, rel=0.01)
    assert with_tensor - after == pytest.approx(size, rel=0.01)


def test_a_sample_holds_the_peak_between_two_samples() -> None:
    samples: list[dict[str, int]] = []
    sampler = MemorySampler(samples.append, interval_s=30.0)
    before = heap_bytes()
    assert before is not None
    sampler.start()
    seen = 0
    while seen < 32 * 2**20:  # until the thread has looked while the tensor was there
        tensor = torch.ones(2**23)
        tensor.add_(1)
        seen = sampler.peak_bytes - before
        del tensor
    sampler.stop()

    assert samples[-1]["heap_peak_bytes"] - before > 32 * 2**20
    assert samples[-1]["heap_peak_bytes"] > samples[-1]["heap_bytes"] + 16 * 2**20
