"""Rows of Megatron's own test file: exact allocator bytes on the last global rank."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from tests.bench.published.rows import Refused, Row, number
from tests.bench.published.score import Pair, is_calibration, summary
from workbench.errors import WorkbenchError
from workbench.layout import Layout
from workbench.layout.check import check_batch, check_model
from workbench.model import ModelSpec, model
from workbench.planner.case import case_of
from workbench.planner.memory import memory
from workbench.planner.numbers import model_numbers
from workbench.planner.profiles import Profile, profile
from workbench.units import MIB

#: Workspaces of cuBLAS and Transformer Engine, by GPU: the file's own near constant.
FIXED_BYTES = {"H100": 106 * MIB, "A100": 80 * MIB, "GB200": 106 * MIB}


def scored_mcore(rows: list[Row]) -> dict[str, Any]:
    """Score bytes after a step and at the peak."""
    refused: Counter[str] = Counter()
    after, peak = [], []
    asked = [r for r in rows if not is_calibration(r) and r["mem_allocated_bytes"]]
    for row in asked:
        try:
            states, highest = last_rank_bytes(row)
        except (Refused, WorkbenchError) as reason:
            refused[str(reason).split("\n")[0][:40]] += 1
            continue
        after.append(_pair(row, "mem_allocated_bytes", states))
        if row["mem_max_allocated_bytes"]:
            peak.append(_pair(row, "mem_max_allocated_bytes", highest))
    return {
        "rows": len(after),
        "refused": dict(refused),
        "memory_after_step": summary(after, []),
        "memory": summary(peak, []),
    }


def _pair(row: Row, column: str, predicted: float) -> Pair:
    named = {**row, "model": row["test_case"]}
    return Pair(row=named, measured=float(row[column]), predicted=predicted)


def last_rank_bytes(row: Row) -> tuple[float, float]:
    """Return bytes after a step and at the peak of the last stage."""
    options = json.loads(row["other_args"] or "{}")
    spec, layout, batch = _asked(row, options)
    check_batch(layout, batch)
    check_model(layout, spec)
    numbers = model_numbers(spec, _profile(options))
    case = case_of(layout, global_batch=batch, stage=layout.pp - 1)
    judged = memory(numbers, case)
    fixed = next(size for gpu, size in FIXED_BYTES.items() if gpu in row["gpu"])
    states = judged.weights + judged.gradients + judged.optimizer
    return float(states + fixed), float(judged.peak + fixed)


def _profile(options: dict[str, Any]) -> Profile:
    local = options.get("transformer-impl") == "local"
    unfused = local or "unfused" in str(options.get("attention-backend", ""))
    found = profile("megatron-2021" if unfused else "megatron-core")
    dropout = float(options.get("hidden-dropout", 0.1)) > 0
    work = replace(found.work, mask_bytes=2 if dropout else 0)
    return replace(found, work=work, fixed_bytes=0)


def _asked(row: Row, options: dict[str, Any]) -> tuple[ModelSpec, Layout, int]:
    _refuse_what_is_not_dense(row, options)
    tp, pp, cp = number(row, "tp", 1), number(row, "pp", 1), number(row, "cp", 1)
    ranks, micro = number(row, "n_gpus"), number(row, "mbs")
    data = ranks // (tp * pp * cp)
    batch = number(row, "gbs")
    layers_per_chunk = options.get("num-layers-per-virtual-pipeline-stage")
    layers = number(row, "layers")
    chunks = layers // pp // int(layers_per_chunk) if layers_per_chunk and pp > 1 else 1
    chunks = int(options.get("num-virtual-stages-per-pipeline-rank", chunks))
    layout = Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=data,
        zero=1 if row["dist_optimizer"] == "1" else 0,
        sp=row["sp"] == "1" and tp > 1,
        num_microbatches=batch // (data * micro),
        chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        precision="fp16" if "fp16" in row["precision"] else "bf16",
        recompute="full" if row["recompute"].startswith("full") else "none",
        ends_as_layers="account-for-loss-in-pipeline-split" in options,
        context="all_gather",
    )
    return _model(row, options, tp), layout, batch


def _refuse_what_is_not_dense(row: Row, options: dict[str, Any]) -> None:
    family = row["test_case"].split("/")[0]
    if family not in {"gpt", "nemotron"} or row["num_experts"]:
        raise Refused(f"family {family}")
    if row["fsdp"] not in {"", "0"} or "use-megatron-fsdp" in options:
        raise Refused("Megatron-FSDP")
    if "multi-latent-attention" in options:
        raise Refused("latent attention")


def gated_ffn(hidden: int) -> int:
    """Return Megatron's default middle of a gated MLP: 8/3 of the width, in 64s."""
    return int(4 * hidden * 2 / 3) // 64 * 64


def _model(row: Row, options: dict[str, Any], tp: int) -> ModelSpec:
    """Return the model with the vocabulary padded to 128 x tp, as Megatron does."""
    words = number(row, "vocab_arg", 50257)
    padded = -(-words // (128 * tp)) * 128 * tp
    hidden, heads = number(row, "hidden"), number(row, "heads")
    gated = bool(options.get("swiglu"))
    shape = {
        "hidden": hidden,
        "num_layers": number(row, "layers"),
        "num_heads": heads,
        "num_kv_heads": number(row, "kv_groups", heads),
        "ffn": number(row, "ffn", gated_ffn(hidden) if gated else 4 * hidden),
        "vocab_size": padded,
        "tokens_per_sample": number(row, "seq_len"),
        "tied": row["tied_embeddings"] == "1",
    }
    return model("llama" if gated else "gpt", **shape)
