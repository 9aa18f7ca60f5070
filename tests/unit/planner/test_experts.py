"""Mixtures of experts: spread states, tokens' exchange, FLOPs of the chosen alone."""

import pytest

from workbench.errors import LayoutError, ModelError
from workbench.hardware import hardware
from workbench.layout import Layout
from workbench.model import model
from workbench.planner import Plan, plan

SPEC = model("mixtral-8x7b", num_layers=2)
CLUSTER = hardware("h100")


def planned(**degrees: int) -> Plan:
    layout = Layout(**degrees, precision="bf16")
    batch = layout.num_data_ranks
    return plan(SPEC, CLUSTER, layout, global_batch=batch, profile="megatron-core")


def expert_elements() -> int:
    return sum(
        p.num_elements for _, p in SPEC.named_parameters() if p.ep_dim is not None
    )


def test_mixtral_has_its_published_parameters():
    # 46.7 B in all, 12.9 B active (arXiv:2401.04088).
    spec = model("mixtral-8x7b")
    active = spec.forward_flops / (2 * spec.tokens_per_sample)
    scores = 2 * spec.tokens_per_sample * 4096 * 32

    assert spec.num_parameters == 46_702_792_704
    assert active - scores == pytest.approx(12.9e9, rel=0.02)


def test_ranks_of_ep_spread_the_experts_alone():
    one, four = planned(dp=4), planned(ep=4)
    dense = SPEC.num_parameters - expert_elements()

    assert one.memory[0].by_category["weights"] == 2 * SPEC.num_parameters
    assert four.memory[0].by_category["weights"] == 2 * (dense + expert_elements() // 4)


def test_tokens_go_out_and_back_forward_and_backward():
    made = planned(ep=4)
    exchange = next(c for c in made.comm if c.op == "all_to_all")

    assert exchange.axis == "ep"
    assert exchange.count == 4 * 2
    assert exchange.payload_bytes == 4 * 2 * SPEC.tokens_per_sample * 2 * 4096 * 2


def test_gradients_of_experts_are_not_summed_over_ep():
    made = planned(ep=4)
    summed = sum(c.payload_bytes for c in made.comm if c.purpose == "gradients")

    assert summed == 4 * (SPEC.num_parameters - expert_elements())


def test_fewer_and_larger_products_per_rank_are_faster():
    one, four = planned(dp=4), planned(ep=4)

    # The same FLOPs; four times the tokens per expert fill the last wave of tiles.
    assert 0.8 * one.step_time.compute_s < four.step_time.compute_s
    assert four.step_time.compute_s < one.step_time.compute_s


def test_experts_that_do_not_divide_are_refused():
    with pytest.raises(LayoutError) as caught:
        planned(ep=3)

    assert caught.value.message == "num_experts 8 does not divide by ep 3"
    assert caught.value.hint == "try ep=2"


def test_more_chosen_than_there_are_is_refused():
    with pytest.raises(ModelError, match="top_k 9 of 8 experts"):
        model("mixtral-8x7b", top_k=9)
