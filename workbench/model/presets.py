"""Named models with their published shapes, and two free ones: "gpt" and "llama"."""

import difflib
from dataclasses import dataclass
from types import MappingProxyType

from workbench.errors import ModelError
from workbench.model.gpt import gpt
from workbench.model.llama import llama
from workbench.model.moe import mixture
from workbench.model.shape import DecoderShape, head_width
from workbench.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published (or small free) shape; `num_kv_heads` None means one per query head."""

    family: str
    hidden: int
    num_layers: int
    num_heads: int
    ffn: int
    vocab_size: int
    tokens_per_sample: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    tied: bool = False
    rope_theta: float = 10_000.0
    num_experts: int = 0
    top_k: int = 0
    source: str


_GPT2 = "Radford et al. 2019, Table 2; tied output matrix as in the released code"
_GPT3 = "Brown et al. 2020, arXiv:2005.14165 Table 2.1"
_LLAMA1 = "Touvron et al. 2023, arXiv:2302.13971 Table 2"
_LLAMA2 = "Touvron et al. 2023, arXiv:2307.09288; config.json of the release"
_MIXTRAL = "Jiang et al. 2024, arXiv:2401.04088; config.json of the release"
_LLAMA3 = "Grattafiori et al. 2024, arXiv:2407.21783 Table 3"


def _gpt2(hidden: int, num_layers: int, num_heads: int) -> Preset:
    return Preset(
        family="gpt",
        hidden=hidden,
        num_layers=num_layers,
        num_heads=num_heads,
        ffn=4 * hidden,
        vocab_size=50257,
        tokens_per_sample=1024,
        tied=True,
        source=_GPT2,
    )


def _gpt3(hidden: int, num_layers: int, num_heads: int) -> Preset:
    return Preset(
        family="gpt",
        hidden=hidden,
        num_layers=num_layers,
        num_heads=num_heads,
        ffn=4 * hidden,
        vocab_size=50257,
        tokens_per_sample=2048,
        tied=True,
        source=_GPT3,
    )


def _llama(
    hidden: int,
    num_layers: int,
    num_heads: int,
    ffn: int,
    *,
    tokens: int,
    source: str,
    num_kv_heads: int | None = None,
    vocab_size: int = 32000,
    rope_theta: float = 10_000.0,
) -> Preset:
    return Preset(
        family="llama",
        hidden=hidden,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        ffn=ffn,
        vocab_size=vocab_size,
        tokens_per_sample=tokens,
        rope_theta=rope_theta,
        source=source,
    )


def _llama3(hidden: int, num_layers: int, num_heads: int, ffn: int) -> Preset:
    return _llama(
        hidden,
        num_layers,
        num_heads,
        ffn,
        tokens=8192,
        source=_LLAMA3,
        num_kv_heads=8,
        vocab_size=128256,
        rope_theta=500_000.0,
    )


def _mixture(
    hidden: int,
    num_layers: int,
    num_heads: int,
    ffn: int,
    *,
    vocab_size: int,
    source: str,
) -> Preset:
    return Preset(
        family="moe",
        hidden=hidden,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=8,
        ffn=ffn,
        vocab_size=vocab_size,
        tokens_per_sample=4096,
        rope_theta=1_000_000.0,
        num_experts=8,
        top_k=2,
        source=source,
    )


#: Every named model. "gpt" and "llama" are small, untied starting points.
PRESETS = MappingProxyType(
    {
        "gpt": Preset(
            family="gpt",
            hidden=128,
            num_layers=4,
            num_heads=4,
            ffn=0,
            vocab_size=256,
            tokens_per_sample=128,
            source="free shape: ffn is 4 x hidden unless given, output matrix untied",
        ),
        "llama": Preset(
            family="llama",
            hidden=128,
            num_layers=4,
            num_heads=4,
            ffn=0,
            vocab_size=256,
            tokens_per_sample=128,
            source="free shape: ffn is 8/3 x hidden up to a multiple of 64 unless given",
        ),
        "moe": Preset(
            family="moe",
            hidden=128,
            num_layers=4,
            num_heads=4,
            ffn=0,
            vocab_size=256,
            tokens_per_sample=128,
            num_experts=4,
            top_k=2,
            source="free shape: an expert's ffn is 8/3 x hidden unless given",
        ),
        "gpt2": _gpt2(768, 12, 12),
        "gpt2-medium": _gpt2(1024, 24, 16),
        "gpt2-large": _gpt2(1280, 36, 20),
        "gpt2-xl": _gpt2(1600, 48, 25),
        "gpt3-1.3b": _gpt3(2048, 24, 16),
        "gpt3-6.7b": _gpt3(4096, 32, 32),
        "gpt3-13b": _gpt3(5120, 40, 40),
        "gpt3-175b": _gpt3(12288, 96, 96),
        "llama-7b": _llama(4096, 32, 32, 11008, tokens=2048, source=_LLAMA1),
        "llama-13b": _llama(5120, 40, 40, 13824, tokens=2048, source=_LLAMA1),
        "llama-33b": _llama(6656, 60, 52, 17920, tokens=2048, source=_LLAMA1),
        "llama-65b": _llama(8192, 80, 64, 22016, tokens=2048, source=_LLAMA1),
        "llama2-7b": _llama(4096, 32, 32, 11008, tokens=4096, source=_LLAMA2),
        "llama2-13b": _llama(5120, 40, 40, 13824, tokens=4096, source=_LLAMA2),
        "llama2-70b": _llama(
            8192, 80, 64, 28672, tokens=4096, source=_LLAMA2, num_kv_heads=8
        ),
        "llama3-8b": _llama3(4096, 32, 32, 14336),
        "llama3-70b": _llama3(8192, 80, 64, 28672),
        "llama3.1-405b": _llama3(16384, 126, 128, 53248),
        "mixtral-8x7b": _mixture(
            4096, 32, 32, 14336, vocab_size=32000, source=_MIXTRAL
        ),
        "mixtral-8x22b": _mixture(
            6144, 56, 48, 16384, vocab_size=32768, source=_MIXTRAL
        ),
        "grok-1": _mixture(
            6144,
            64,
            48,
            32768,
            vocab_size=131072,
            source="xai-org/grok-1, run.py of the release",
        ),
    }
)

_OVERRIDES = tuple(
    name for name in Preset.__dataclass_fields__ if name not in {"family", "source"}
)


def model(name: str, **overrides: int | float | bool) -> ModelSpec:
    """Return a named model, or one of the free shapes, with numbers of it replaced.

    Args:
        name: A key of `PRESETS`, e.g. "gpt", "llama3-8b".
        **overrides: hidden, num_layers, num_heads, num_kv_heads, head_dim, ffn,
            vocab_size, tokens_per_sample, tied, rope_theta, num_experts, top_k.

    Raises:
        ModelError: An unknown name or number, or shapes that do not divide.

    >>> model("llama3-8b").num_parameters
    8030261248
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise ModelError(f"no model is called {name!r}", hint=_nearest(name, PRESETS))
    for key in overrides:
        if key not in _OVERRIDES:
            raise ModelError(
                f"model {name!r} has no number {key!r}", hint=_nearest(key, _OVERRIDES)
            )
    return _build(name, preset, {**vars(preset), **overrides})


def _build(name: str, preset: Preset, values: dict[str, object]) -> ModelSpec:
    shape = _shape(preset.family, values)
    source = preset.source
    if any(values[key] != getattr(preset, key) for key in _OVERRIDES):
        source = f"{source}; with numbers replaced by the person"
    if preset.family == "gpt":
        return gpt(name, shape, source=source)
    theta = values["rope_theta"]
    assert isinstance(theta, int | float)
    if preset.family == "moe":
        return mixture(
            name,
            shape,
            num_experts=_whole(values, "num_experts"),
            top_k=_whole(values, "top_k"),
            rope_theta=float(theta),
            source=source,
        )
    return llama(name, shape, rope_theta=float(theta), source=source)


def _whole(values: dict[str, object], name: str) -> int:
    value = values[name]
    if not isinstance(value, int):
        raise ModelError(f"{name} is {value!r}, it must be a whole number")
    return value


def _shape(family: str, values: dict[str, object]) -> DecoderShape:
    numbers = {
        key: value
        for key, value in values.items()
        if key in DecoderShape.__dataclass_fields__
    }
    hidden, heads = values["hidden"], values["num_heads"]
    if not isinstance(hidden, int) or not isinstance(heads, int):
        raise ModelError(f"hidden {hidden!r} and num_heads {heads!r} are whole numbers")
    if numbers["num_kv_heads"] is None:
        numbers["num_kv_heads"] = heads
    if numbers["head_dim"] is None:
        numbers["head_dim"] = head_width(hidden, heads)
    if numbers["ffn"] == 0:
        numbers["ffn"] = 4 * hidden if family == "gpt" else -(-8 * hidden // 192) * 64
    return DecoderShape(**numbers)  # type: ignore[arg-type]


def _nearest(name: str, known: object) -> str:
    names = sorted(known)  # type: ignore[call-overload]
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
