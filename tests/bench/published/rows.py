"""One row of published ground truth as a question to the planner.

A row gives a model's shape, a GPU, a layout and a framework; what it leaves out is taken
from the preset of the same name, or the row is refused with a reason.
"""

import re
from dataclasses import dataclass, replace

from workbench.errors import WorkbenchError
from workbench.hardware import ClusterSpec, hardware
from workbench.layout import Layout
from workbench.model import ModelSpec, model

Row = dict[str, str]


class Refused(Exception):
    """The row cannot be asked; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the planner is asked for one row."""

    model: ModelSpec
    hardware: ClusterSpec
    layout: Layout
    global_batch: int
    profile: str
    recompute_stated: bool = True


def number(row: Row, name: str, default: int | None = None) -> int:
    """Return a whole number of a row."""
    text = row.get(name, "")
    if not text:
        if default is None:
            raise Refused(f"no {name}")
        return default
    try:
        return int(float(text))
    except ValueError as error:
        raise Refused(f"{name} is no single number") from error


def question(row: Row) -> Question:
    """Translate a row.

    Raises:
        Refused: A field is missing, or contradicts the others.
    """
    try:
        spec = model_of(row)
        layout, batch = layout_of(row)
        cluster = hardware_of(row, layout.num_ranks)
    except WorkbenchError as error:
        raise Refused(error.message[:60]) from error
    return Question(
        model=spec,
        hardware=cluster,
        layout=layout,
        global_batch=batch,
        profile=profile_of(row),
        recompute_stated=bool(row.get("recompute")),
    )


# Models -----------------------------------------------------------------------------

#: Mixtures by a part of their name in the data.
MIXTURES = {
    "grok": "grok-1",
    "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b",
}


def model_of(row: Row) -> ModelSpec:
    """Return the row's model: its own shape, or a GPT of its size."""
    name = row["model"].lower()
    tokens = number(row, "seq_len")
    if any(word in name for word in ("lora", "sft", "qwen", "nemotron-h", "g8t8")):
        raise Refused("no preset, or no pre-training")
    mixture = next((p for text, p in MIXTURES.items() if text in name), None)
    if mixture:
        preset = model(mixture)
        layers = number(row, "layers", preset.number("num_layers"))
        return model(mixture, num_layers=layers, tokens_per_sample=tokens)
    if row.get("ep") not in {"", "1", None}:
        raise Refused("experts without a preset")
    if not row.get("hidden"):
        return sized_gpt(row, tokens)
    shape = {
        "hidden": number(row, "hidden"),
        "num_layers": number(row, "layers"),
        "num_heads": number(row, "heads"),
        "num_kv_heads": number(row, "kv_heads", number(row, "heads")),
        "ffn": number(row, "ffn", 4 * number(row, "hidden")),
        "vocab_size": number(row, "vocab", 51200),
        "tokens_per_sample": tokens,
    }
    if shape["hidden"] % shape["num_heads"]:
        raise Refused("hidden does not divide by heads")
    gated = "llama" in name or "internlm" in name
    return model(
        "llama" if gated else "gpt", **shape, **({} if gated else {"tied": True})
    )


def sized_gpt(row: Row, tokens: int) -> ModelSpec:
    """Return a GPT of the row's size in the usual proportions: 128 wide per layer."""
    if not row.get("params_b") or "gpt" not in row["model"].lower():
        raise Refused("no shape")
    parameters = float(row["params_b"]) * 1e9
    hidden = max(1024, round((128 * parameters / 12) ** (1 / 3) / 1024) * 1024)
    layers = max(1, round((parameters - 51200 * hidden) / (12 * hidden**2)))
    return model(
        "gpt",
        hidden=hidden,
        num_layers=layers,
        num_heads=hidden // 128,
        vocab_size=51200,
        tokens_per_sample=tokens,
        tied=True,
    )


# Layouts ----------------------------------------------------------------------------

SCHEDULES = {
    "1f1b": "1f1b",
    "interleaved_1f1b": "interleaved",
    "1f1b-i": "interleaved",
    "zb-1p": "zb-h1",
    "gpipe": "gpipe",
}


def layout_of(row: Row) -> tuple[Layout, int]:
    """Return the row's layout and global batch."""
    tp, pp, cp = number(row, "tp", 1), number(row, "pp", 1), number(row, "cp", 1)
    ranks, micro = number(row, "n_gpus"), number(row, "mbs")
    if ranks % (tp * pp * cp):
        raise Refused("tp x pp x cp does not divide the GPUs")
    data = ranks // (tp * pp * cp)
    batch = number(row, "gbs", data * micro * number(row, "grad_accum", 1))
    if batch % (data * micro):
        raise Refused("the batch does not divide by dp x mbs")
    sharding = row.get("dp_sharding", "").lower()
    sharded = "zero3" in sharding or "fsdp" in sharding
    ep = number(row, "ep", 1)
    if data % ep:
        raise Refused("ep does not divide dp")
    chunks = number(row, "vpp", unstated_chunks(row, pp))
    schedule = SCHEDULES.get(row.get("schedule", "").lower(), "1f1b")
    if row.get("schedule", "").lower() in {"zb-2p", "dualpipe"}:
        raise Refused("schedule")
    layout = Layout(
        pp=pp,
        cp=cp,
        tp=tp,
        ep=ep,
        dp=1 if sharded else data // ep,
        fsdp=data // ep if sharded else 1,
        num_microbatches=batch // (data * micro),
        chunks=chunks if pp > 1 else 1,
        schedule="interleaved"
        if pp > 1 and chunks > 1
        else (schedule if schedule != "interleaved" else "1f1b"),
        zero=0
        if sharded
        else (1 if "zero1" in sharding or "distributed" in sharding else 0),
        sp=tp > 1 and sequence_parallel(row),
        precision=precision_of(row),
        recompute=recompute_of(row),
        context="all_gather",
        ends_as_layers="hold one layer fewer" in row.get("notes", ""),
        offload=("optimizer",) if "optimizer" in row.get("offload", "") else (),
    )
    return layout, batch


def recompute_of(row: Row) -> str:
    """Return what the row says it computes again."""
    text = row.get("recompute", "")
    if text.startswith("full"):
        return "full"
    return "selective" if text.startswith("selective") else "none"


def unstated_chunks(row: Row, pp: int) -> int:
    """NeMo interleaves as far as layers allow where a table leaves its column empty."""
    layers = number(row, "layers", 0)
    if "NeMo" in row["framework"] and pp > 1 and layers and layers % pp == 0:
        return layers // pp
    return 1


def sequence_parallel(row: Row) -> bool:
    """NeMo switches sequence parallelism on beside tp; other rows say so."""
    return row.get("sp") == "1" or (not row.get("sp") and "NeMo" in row["framework"])


def precision_of(row: Row) -> str:
    """Return the precision of compute."""
    text = row.get("precision", "").lower()
    if "fp8" in text or "float8" in text:
        return "fp8"
    return "fp16" if "fp16" in text and "bf16" not in text else "bf16"


# Hardware and framework -------------------------------------------------------------

GPUS = (
    ("V100-SXM2-16GB", "v100"),
    ("V100", "v100"),
    ("A100-SXM-40GB", "a100-40"),
    ("A100", "a100"),
    ("A800", "a100"),
    ("H100", "h100"),
    ("H800", "h100"),
    ("H200", "h200"),
    ("GB200", "gb200"),
    ("B200", "b200"),
    ("GH-96", "gh200"),
)


def hardware_of(row: Row, num_ranks: int) -> ClusterSpec:
    """Return nodes of the row's GPU, with the network that the row names."""
    name = next((preset for text, preset in GPUS if row["gpu"].startswith(text)), None)
    if name is None:
        raise Refused(f"gpu {row['gpu'][:20]}")
    cluster = hardware(name)
    group = cluster.groups[0]
    per_node = min(number(row, "gpus_per_node", group.devices_per_node), num_ranks)
    per_node = group.devices_per_node if name == "gb200" else per_node
    nodes = -(-num_ranks // per_node)
    group = replace(group, num_nodes=nodes, devices_per_node=per_node)
    rate = port_bytes_per_s(row.get("interconnect", ""), per_node)
    links = cluster.links
    if rate:
        near, far = links
        links = (near, replace(far, bytes_per_s=replace(far.bytes_per_s, value=rate)))
    return replace(cluster, groups=(group,), links=links)


def port_bytes_per_s(text: str, per_node: int) -> float | None:
    """Return 90 percent of the rate per GPU that a description of the network names."""
    per_gpu = re.search(r"(\d+) ?x ?(?:HDR )?(\d+) Gb/s", text)
    if per_gpu:
        return 0.9 * int(per_gpu[1]) * int(per_gpu[2]) / 8 / per_node * 1e9
    node = re.search(r"(\d+) ?Gbps node-node|(\d+) Gb/s per node", text)
    if node:
        return 0.9 * int(node[1] or node[2]) / 8 / per_node * 1e9
    return None


def profile_of(row: Row) -> str:
    """Return the framework profile of a row, by framework and attention kernel."""
    framework, kernel = row["framework"], row.get("attn_kernel", "")
    if "Aleph Alpha" in framework:
        return HAGEMANN_KERNELS[kernel]
    if "InternEvo" in framework or row["source"].startswith("vocabulary"):
        return "megatron"
    if "JAX" in framework:
        return "maxtext"
    if "Liger" in framework:
        return "deepspeed-liger"
    if "Composer" in framework or "FSDP1" in framework:
        return "fsdp1"
    if "FSDP" in framework or "torchtitan" in framework:
        return "fsdp2"
    if "NeMo" in framework:
        return "nemo"
    if "Megatron-Core" in framework:
        return "megatron-core"
    return "megatron-2021"


HAGEMANN_KERNELS = {
    "flash_attention2 + RMS kernel": "megatron-flash2",
    "flash_attention2": "megatron-flash2-plain-norm",
    "flash_attention": "megatron-flash1-plain-norm",
    "flash_attentionv1.0.8": "megatron-flash1-plain-norm",
    "fused": "megatron-fused-softmax",
    "torch": "megatron-eager",
}
