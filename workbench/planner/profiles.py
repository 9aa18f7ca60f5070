"""Framework profiles: the facts in which training frameworks differ, named and sourced.

A formula is right only for a framework: what it keeps in float32, what its fused kernels
leave out, how it reduces gradients. Every such fact stands here, none in a formula.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from workbench.errors import PlanError
from workbench.units import GIB, MIB


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """Bytes per element of what lives between steps.

    Args:
        weights: The copy that the forward reads or is cast from.
        gradients: Kept gradients.
        optimizer: Moments, and a float32 master copy where there is one.
        compute_copy: A cast copy of gathered weights; 0 where weights are used as held.
        gather: What one element costs in a gather of weights.
        reduce: What one element costs in a reduction of gradients.
    """

    weights: int
    gradients: int
    optimizer: int
    compute_copy: int
    gather: int
    reduce: int


_FLOAT32 = StateBytes(
    weights=4, gradients=4, optimizer=8, compute_copy=0, gather=4, reduce=4
)
_FLOAT32_SHARDS = StateBytes(
    weights=4, gradients=4, optimizer=8, compute_copy=2, gather=2, reduce=4
)
_MEGATRON = StateBytes(
    weights=2, gradients=4, optimizer=12, compute_copy=0, gather=2, reduce=4
)
_DEEPSPEED = StateBytes(
    weights=2, gradients=2, optimizer=12, compute_copy=0, gather=2, reduce=2
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a framework's layer does beside matrix products, per forward.

    Args:
        hidden_passes: Times that a tensor as wide as the residual stream is read or
            written: norms 4, residual sums 6, and what is not fused.
        middle_passes: The same for a tensor as wide as the MLP's middle.
        head_passes: The same for queries, keys and values: rotary, transposes.
        score_bytes: Bytes moved per attention score; 0 for fused (flash) attention.
        attention_share: Rate of its attention kernel, 1 for flash attention 2.
        operations: Operations that the host issues for one layer.
        backward: Element-wise bytes and operations of the backward over the forward.
        kept_score_bytes: Bytes kept per attention score for the backward.
        mask_bytes: Bytes kept per element of a layer's output: dropout masks.
    """

    hidden_passes: float
    middle_passes: float
    head_passes: float
    score_bytes: float
    attention_share: float
    operations: float
    backward: float = 1.6
    kept_score_bytes: float = 0
    mask_bytes: float = 0


#: Eager torch with its fused attention: every element-wise operation on its own.
EAGER = Work(
    hidden_passes=14,
    middle_passes=3,
    head_passes=2,
    score_bytes=0,
    attention_share=1,
    operations=25,
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one framework does, as far as memory, traffic and time depend on it.

    Args:
        name: What people call it.
        states: Bytes per element by precision of compute.
        optimizer_bytes_per_tensor: Beside the elements, e.g. a float32 step counter.
        gradients_persist: Whether gradient memory is held through the whole step (flat
            buffers), or appears as the backward proceeds and goes after the step.
        saved_share: Share of a saved tensor that this framework's kernels really keep,
            by kind; 1 where a kind is not named.
        overlaps_gradients: Whether gradient reduction runs beside the backward.
        scatters_sends: Whether pipeline boundaries are sent cut over tp.
        tensor_exposed: Share of tp's messages that the step waits for, 1 without
            overlap of products and sums.
        context_exposed: The same for cp's messages.
        selective_share: Share of a layer's forward, beside attention's core, that
            selective recompute runs again.
        reduces_each_microbatch: Whether fsdp scatters gradients after each micro-batch,
            or sums whole gradients in place and scatters after the last.
        gathers_inputs_again: Whether sequence parallelism keeps a region's input cut and
            gathers it again for the backward.
        prefetched_blocks: Blocks gathered ahead of the one in use (fsdp).
        logits_cut: Whether tp cuts the logits that the loss keeps.
        fragmentation: Share of the peak that the allocator loses between its blocks.
        reserve_bytes: What lies beside the allocator: context, communication buffers.
        fixed_bytes: Workspaces that no tensor accounts for.
        work: What its kernels do beside matrix products.
        head_gradient_copies: Float32 copies of the logits alive at the first backward
            beyond what the loss saved.
        source: Where these facts are from.
    """

    name: str
    states: Mapping[str, StateBytes]
    source: str
    work: Work = EAGER
    optimizer_bytes_per_tensor: int = 0
    gradients_persist: bool = True
    saved_share: Mapping[str, float] = field(default_factory=dict)
    overlaps_gradients: bool = True
    scatters_sends: bool = False
    tensor_exposed: float = 1.0
    context_exposed: float = 1.0
    selective_share: float = 0.0
    reduces_each_microbatch: bool = True
    gathers_inputs_again: bool = True
    prefetched_blocks: int = 1
    logits_cut: bool = True
    fragmentation: float = 0.0
    reserve_bytes: int = 0
    fixed_bytes: int = 0
    head_gradient_copies: float = 2


def _states(fp32: StateBytes, reduced: StateBytes) -> Mapping[str, StateBytes]:
    return MappingProxyType(
        {"fp32": fp32, "bf16": reduced, "fp16": reduced, "fp8": reduced}
    )


#: Effective numbers, fitted with the constants of `hardware` on a tenth of published
#: step times (tests.bench.published): one pass of fused work cannot be told apart from
#: other small losses.
_FUSED = Work(
    hidden_passes=8,
    middle_passes=3,
    head_passes=2,
    score_bytes=0,
    attention_share=1,
    operations=20,
    backward=1.0,
)
#: Scores written, masked, normalised, dropped and read again.
_FUSED_SOFTMAX = replace(_FUSED, score_bytes=23.5, operations=69, kept_score_bytes=5)
#: Fused norms keep no normalised copy, a fused gate no SiLU of its own.
_FUSED_SAVED: Mapping[str, float] = MappingProxyType(
    {"norm1.normalised": 0, "norm2.normalised": 0, "normalised": 0, "mlp.silu": 0}
)
#: A loss fused with the output matrix keeps no log-probabilities either.
_FUSED_LOSS: Mapping[str, float] = MappingProxyType(
    {**_FUSED_SAVED, "log_probabilities": 0}
)
#: Copies of queries and keys that eager rotary positions keep, in Aleph Alpha's code;
#: this and its reserve, logits and norms are fitted on the calibration tenth of its rows.
_EAGER_SAVED: Mapping[str, float] = MappingProxyType(
    {
        "norm1.normalised": 0,
        "norm2.normalised": 0,
        "normalised": 0,
        "attn.q": 2,
        "attn.k": 2,
    }
)
#: Eager norms keep copies in float32: two tensors of twice the bytes.
_PLAIN_SAVED: Mapping[str, float] = MappingProxyType(
    {**_EAGER_SAVED, "norm1.normalised": 4, "norm2.normalised": 4, "normalised": 4}
)
#: Rate of flash attention 1 over flash attention 2.
_FLASH1_SHARE = 0.56
#: A norm as eager operations in float32: cast, square, mean, scale, cast back, twice.
_PLAIN_NORMS = 86
#: Rotary positions and gated MLP as eager operations.
_EAGER_PARTS = replace(
    _FUSED, hidden_passes=68, head_passes=14, middle_passes=5, operations=40
)
_EAGER_SOFTMAX = replace(_EAGER_PARTS, score_bytes=23.5, kept_score_bytes=4)


#: Profiles that chunk products to send and multiply at once.
_CORE = ("megatron-core", "nemo")


def _megatron(
    name: str,
    work: Work,
    source: str,
    *,
    overlaps: bool = True,
    saved: Mapping[str, float] | None = None,
    aleph_alpha: bool = False,
) -> Profile:
    return Profile(
        name=name,
        states=_states(_FLOAT32, _DEEPSPEED if aleph_alpha else _MEGATRON),
        work=work,
        overlaps_gradients=overlaps,
        scatters_sends=True,
        saved_share=_FUSED_SAVED if saved is None else saved,
        # Aleph Alpha's loss gathers the logits of all tp ranks and keeps eager copies.
        logits_cut=not aleph_alpha,
        # Megatron's own loss works in place: 16-bit logits beside one float32 copy.
        head_gradient_copies=4 if aleph_alpha else 0.5,
        fragmentation=0 if aleph_alpha else 0.03,
        reserve_bytes=(12 if aleph_alpha else 4) * GIB,
        tensor_exposed=0.04 if name in _CORE else 1.0,
        context_exposed=0.17 if name in _CORE else 1.0,
        source=source,
    )


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "workbench": Profile(
            name="workbench",
            states=_states(_FLOAT32, _FLOAT32_SHARDS),
            optimizer_bytes_per_tensor=4,
            overlaps_gradients=False,
            reduces_each_microbatch=False,
            gathers_inputs_again=False,
            # What torch, oneDNN and gloo keep after first use: 2.1 to 8.2 MB measured
            # over six nets on two ranks, code loaded at first use not counted.
            fixed_bytes=5 * MIB // 2,
            source="workbench.strategies, eager torch 2.13 with AdamW",
        ),
        "fsdp2": Profile(
            name="fsdp2",
            fragmentation=0.03,
            reserve_bytes=4 * GIB,
            states=_states(_FLOAT32, _FLOAT32_SHARDS),
            optimizer_bytes_per_tensor=4,
            gradients_persist=False,
            work=_EAGER_PARTS,
            selective_share=0.5,
            source="torch FSDP2 with MixedPrecisionPolicy, fused AdamW",
        ),
        "fsdp1": Profile(
            name="fsdp1",
            fragmentation=0.03,
            reserve_bytes=4 * GIB,
            states=_states(_FLOAT32, _FLOAT32_SHARDS),
            gradients_persist=False,
            work=replace(_EAGER_PARTS, head_passes=2, attention_share=_FLASH1_SHARE),
            source="Composer with torch FSDP1 and flash attention in Triton",
        ),
        "maxtext": Profile(
            name="maxtext",
            fragmentation=0.03,
            reserve_bytes=4 * GIB,
            states=_states(_FLOAT32, _FLOAT32_SHARDS),
            gradients_persist=False,
            work=_FUSED,
            source="JAX: XLA fuses element-wise work and overlaps gathers",
        ),
        "megatron": _megatron(
            "megatron", _FUSED, "Megatron-LM: float32 main gradients and master weights"
        ),
        "megatron-core": _megatron(
            "megatron-core", _FUSED, "Megatron-Core with Transformer Engine kernels"
        ),
        "nemo": replace(
            _megatron(
                "nemo", _FUSED, "NeMo recipes: gradients kept and summed in bf16"
            ),
            states=_states(_FLOAT32, _DEEPSPEED),
        ),
        "megatron-2021": _megatron(
            "megatron-2021",
            _FUSED_SOFTMAX,
            "Megatron-LM before flash attention, gradients summed after the backward",
            overlaps=False,
        ),
        "megatron-flash2": _megatron(
            "megatron-flash2",
            _EAGER_PARTS,
            "fused norms, eager rotary and gate, flash attention 2",
            overlaps=False,
            saved=_EAGER_SAVED,
            aleph_alpha=True,
        ),
        "megatron-flash2-plain-norm": _megatron(
            "megatron-flash2-plain-norm",
            replace(
                _EAGER_PARTS, hidden_passes=_EAGER_PARTS.hidden_passes + _PLAIN_NORMS
            ),
            "norms as eager float32 operations, flash attention 2",
            overlaps=False,
            saved=_PLAIN_SAVED,
            aleph_alpha=True,
        ),
        "megatron-flash1-plain-norm": _megatron(
            "megatron-flash1-plain-norm",
            replace(
                _EAGER_PARTS,
                hidden_passes=_EAGER_PARTS.hidden_passes + _PLAIN_NORMS,
                attention_share=_FLASH1_SHARE,
            ),
            "norms as eager float32 operations, flash attention 1",
            overlaps=False,
            saved=_PLAIN_SAVED,
            aleph_alpha=True,
        ),
        "megatron-fused-softmax": _megatron(
            "megatron-fused-softmax",
            replace(
                _EAGER_SOFTMAX, hidden_passes=_EAGER_PARTS.hidden_passes + _PLAIN_NORMS
            ),
            "norms as eager float32 operations, Megatron's fused softmax",
            overlaps=False,
            saved=_PLAIN_SAVED,
            aleph_alpha=True,
        ),
        "megatron-eager": _megatron(
            "megatron-eager",
            replace(
                _EAGER_SOFTMAX,
                hidden_passes=_EAGER_PARTS.hidden_passes + _PLAIN_NORMS,
                score_bytes=47,
            ),
            "norms and softmax as eager operations",
            overlaps=False,
            saved=_PLAIN_SAVED,
            aleph_alpha=True,
        ),
        "deepspeed-liger": Profile(
            name="deepspeed-liger",
            states=_states(_FLOAT32, _DEEPSPEED),
            work=_FUSED,
            saved_share=_FUSED_LOSS,
            fragmentation=0.03,
            reserve_bytes=4 * GIB,
            source="DeepSpeed with Liger kernels: the loss never holds its logits",
        ),
        "deepspeed": Profile(
            name="deepspeed",
            fragmentation=0.03,
            reserve_bytes=4 * GIB,
            states=_states(_FLOAT32, _DEEPSPEED),
            source="ZeRO paper, arXiv:1910.02054: 2 + 2 + 12 bytes per parameter",
        ),
    }
)


def profile(name: str) -> Profile:
    """Return a framework profile by name.

    Raises:
        PlanError: No such profile.
    """
    if name in PROFILES:
        return PROFILES[name]
    close = difflib.get_close_matches(name, PROFILES, n=1)
    raise PlanError(
        f"no framework profile is called {name!r}",
        hint=f"did you mean {close[0]!r}?"
        if close
        else f"known: {', '.join(PROFILES)}",
    )
