"""Steps that were measured lie within the interval that a plan states.

Korthikanti et al. 2022 (arXiv:2205.05198), Table 5: seconds of an iteration on A100,
full recompute against sequence parallelism with selective recompute.
"""

import pytest

from workbench.hardware import hardware
from workbench.layout import Layout
from workbench.model import model
from workbench.planner import Plan, plan

#: name: hidden, layers, heads, GPUs, pp, chunks, micro-batch, batch, full s, selective s
TABLE_5 = {
    "22B": (6144, 48, 64, 8, 1, 1, 4, 4, 1.42, 1.10),
    "175B": (12288, 96, 96, 64, 8, 3, 1, 64, 18.13, 13.75),
    "530B": (20480, 105, 128, 280, 35, 3, 1, 280, 49.05, 37.83),
    "1T": (25600, 128, 160, 512, 64, 1, 1, 512, 94.42, 71.49),
}


def planned(name: str, *, selective: bool) -> Plan:
    hidden, layers, heads, gpus, pp, chunks, micro, batch, *_ = TABLE_5[name]
    spec = model(
        "gpt",
        hidden=hidden,
        num_layers=layers,
        num_heads=heads,
        vocab_size=51200,
        tokens_per_sample=2048,
        tied=True,
    )
    layout = Layout(
        pp=pp,
        tp=8,
        chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        num_microbatches=batch // micro,
        sp=selective,
        recompute="selective" if selective else "full",
        precision="fp16",
    )
    return plan(
        spec,
        hardware("a100", num_nodes=gpus // 8),
        layout,
        global_batch=batch,
        profile="megatron-2021",
    )


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("name", TABLE_5)
def test_a_measured_step_lies_within_the_interval(name, selective):
    measured_s = TABLE_5[name][9 if selective else 8]

    time = planned(name, selective=selective).step_time

    assert time.low_s <= measured_s <= time.high_s


@pytest.mark.parametrize("name", TABLE_5)
def test_selective_recompute_with_sequence_parallelism_is_faster(name):
    full, selective = planned(name, selective=False), planned(name, selective=True)

    assert selective.step_time.total_s < full.step_time.total_s


def test_the_mean_error_of_the_table_is_small():
    errors = [
        abs(
            planned(name, selective=choice).step_time.total_s / row[9 - (not choice)]
            - 1
        )
        for name, row in TABLE_5.items()
        for choice in (False, True)
    ]

    # Calculon, tuned on these rows, reports 3.65 percent; nothing was tuned on them
    # here alone, though three of the eight are in the calibration tenth.
    assert sum(errors) / len(errors) < 0.08
