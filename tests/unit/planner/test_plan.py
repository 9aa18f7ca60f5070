"""A plan is exact where it can be, honest where it cannot, and shows its working."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import LayoutError, PlanError
from workbench.hardware import hardware
from workbench.layout import Layout
from workbench.layout.shards import chunk_rows, shard_rows
from workbench.model import model
from workbench.planner import Plan, plan

GPT = model("gpt", num_layers=3)
NODE = hardware("h100", num_nodes=2)


def planned(layout: Layout, spec=GPT, batch: int | None = None, **more) -> Plan:
    batch = batch or 2 * layout.num_data_ranks * layout.num_microbatches
    return plan(spec, NODE, layout, global_batch=batch, **more)


def sent(made: Plan) -> dict[tuple[str, str, str], tuple[int, int]]:
    return {(c.op, c.axis, c.purpose): (c.count, c.payload_bytes) for c in made.comm}


def test_dp_holds_whole_states_on_every_rank():
    made = planned(Layout(dp=2))
    elements, tensors = GPT.num_parameters, len(list(GPT.named_parameters()))

    for entry in made.memory:
        assert entry.by_category["weights"] == 4 * elements
        assert entry.by_category["gradients"] == 4 * elements
        assert entry.by_category["optimizer"] == 8 * elements + 4 * tensors


# vocab_size 250 and hidden 128 leave uneven rows for most degrees.
@given(st.integers(2, 7))
@settings(max_examples=6, deadline=None)
def test_fsdp_holds_the_rows_of_its_chunks(degree):
    spec = model("gpt", num_layers=1, vocab_size=250)
    made = planned(Layout(fsdp=degree), spec)

    for rank, entry in enumerate(made.memory):
        rows = (
            shard_rows(p.shape[0], degree, rank) * p.num_elements // p.shape[0]
            for _, p in spec.named_parameters()
        )
        assert entry.by_category["weights"] == 4 * sum(rows)


def test_fsdp_sends_padded_chunks():
    spec, degree = model("gpt", num_layers=3, vocab_size=250), 4
    layer = root = 0
    for name, p in spec.named_parameters():
        padded = chunk_rows(p.shape[0], degree) * degree * p.num_elements // p.shape[0]
        layer += padded if name.startswith("layers.0.") else 0
        root += 0 if name.startswith("layers.") else padded

    made = sent(planned(Layout(fsdp=degree), spec))

    assert made["all_gather", "fsdp", "weights"] == (7, 4 * (2 * 3 * layer + root))
    assert made["reduce_scatter", "fsdp", "gradients"] == (4, 4 * (3 * layer + root))


def test_dp_sums_one_bucket_per_unit_and_the_scalars():
    assert sent(planned(Layout(dp=2))) == {
        ("all_reduce", "world", "loss"): (1, 24),
        ("all_reduce", "dp", "gradients"): (4, 4 * GPT.num_parameters),
    }


def test_hybrid_sums_shards_over_replicas():
    made = sent(planned(Layout(dp=2, fsdp=2)))

    assert made["all_reduce", "dp", "gradients"] == (4, 4 * GPT.num_parameters // 2)


def test_a_tied_matrix_is_sent_once():
    tied = model("gpt", tied=True)

    assert sent(planned(Layout(dp=2), tied))["all_reduce", "dp", "gradients"] == (
        5,
        4 * tied.num_parameters,
    )


def test_one_rank_sends_nothing():
    assert planned(Layout()).comm == ()


def test_gloo_sends_a_scatter_as_a_sum(monkeypatch):
    import os

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    made = plan(GPT, hardware("cpu"), Layout(fsdp=2), global_batch=4)

    scatter = next(c for c in made.comm if c.op == "reduce_scatter")

    assert scatter.sent_bytes == scatter.payload_bytes


def test_a_model_too_big_names_what_takes_the_room():
    made = planned(Layout(dp=16), model("llama3-70b"), batch=16)

    assert not made.fits
    assert "rank 0 peaks at" in made.reasons[0]
    assert "80.0 GiB" in made.reasons[0]
    assert "16 of 16 ranks are over" in made.reasons[0]


def test_json_gives_an_equal_plan_back():
    made = planned(Layout(fsdp=2, tp=2, precision="bf16"))

    assert Plan.from_json(made.to_json()) == made


def test_json_of_something_else_is_refused():
    with pytest.raises(PlanError, match="not a Plan in JSON"):
        Plan.from_json('{"model": 1}')


def test_every_figure_explains_itself():
    made = planned(Layout(dp=2, pp=2, num_microbatches=2))

    assert {f"memory.{name}" for name in made.memory[0].by_category} <= set(
        made.explanations
    )
    for name in made.explanations:
        assert all(s.formula and s.value and s.source for s in made.explain(name).steps)


def test_an_explanation_shows_numbers_and_source():
    text = str(planned(Layout(dp=2)).explain("memory.weights"))

    assert f"{GPT.num_parameters:,} elements" in text
    assert f"{4 * GPT.num_parameters:,} B" in text
    assert "source: " in text


def test_a_figure_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(PlanError) as caught:
        planned(Layout(dp=2)).explain("memory.weight")

    assert caught.value.hint == "did you mean 'memory.weights'?"


def test_the_table_says_the_verdict_and_an_interval():
    text = str(planned(Layout(dp=2)))

    assert "fits" in text
    assert "90 percent" in text
    assert "all_reduce gradients on dp" in text


def test_html_escapes_what_it_shows():
    spec = model("gpt")
    page = planned(Layout(dp=2), spec)._repr_html_()

    assert "<table>" in page
    assert "ranks 0-1" in page


@pytest.mark.parametrize(
    ("layout", "batch", "message"),
    [
        (Layout(dp=32), 32, "needs 32 ranks, there are 16 devices"),
        (Layout(dp=3), 4, "does not divide by 3 data ranks"),
        (Layout(tp=3), 3, "num_heads 4 does not divide by tp 3"),
    ],
)
def test_what_cannot_run_is_refused(layout, batch, message):
    with pytest.raises(LayoutError, match=message):
        planned(layout, batch=batch)


def test_an_unknown_profile_is_named_with_the_nearest():
    with pytest.raises(PlanError) as caught:
        planned(Layout(dp=2), profile="megatronn")

    assert caught.value.hint == "did you mean 'megatron'?"


def test_planning_loads_neither_torch_nor_numpy():
    code = (
        "import sys, workbench as wb\n"
        "wb.plan(wb.model('gpt'), wb.hardware('h100'), wb.Layout(dp=2), global_batch=2)\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "False"]


def test_more_fsdp_ranks_hold_less():
    halves, quarters = planned(Layout(fsdp=2)), planned(Layout(fsdp=4))

    assert quarters.peak.peak_bytes < halves.peak.peak_bytes


def test_full_recompute_keeps_less_and_computes_more():
    kept = planned(Layout(precision="bf16"))
    replayed = planned(Layout(precision="bf16", recompute="full"))

    assert (
        replayed.memory[0].by_category["activations"]
        < (kept.memory[0].by_category["activations"])
    )
    # Every layer's forward once more, of three; the output matrix is not replayed.
    assert 1.25 < replayed.hfu / replayed.mfu < 4 / 3


def test_ends_that_count_as_layers_leave_the_end_stages_fewer():
    spec = model("gpt", num_layers=6)
    even = planned(Layout(pp=4, num_microbatches=4, ends_as_layers=True), spec)
    weights = [entry.by_category["weights"] for entry in even.memory]
    layer = 4 * sum(
        p.num_elements
        for name, p in spec.named_parameters()
        if name.startswith("layers.0.")
    )
    before = 4 * (256 + 128) * 128
    after = 4 * (256 * 128 + 2 * 128)

    assert weights == [layer + before, 2 * layer, 2 * layer, layer + after]


def test_ipython_shows_a_plan_as_its_table():
    from IPython.lib.pretty import pretty

    made = planned(Layout(dp=2))

    assert pretty(made) == str(made)


def test_a_device_that_was_not_calibrated_has_a_wide_interval_and_says_so():
    def judged(kind: str) -> Plan:
        return plan(GPT, hardware(kind), Layout(), global_batch=1)

    known, unknown = judged("h100"), judged("h200")

    def width(made: Plan) -> float:
        return made.step_time.high_s / made.step_time.low_s

    assert width(unknown) > 2 * width(known)
    assert "none of this device was fitted on" in str(
        unknown.explain("step_time.total")
    )
