"""A model as numbers: what the planner reads and what a net can be built from.

Everything is per sample: one sequence of `tokens_per_sample` tokens for a language
model, one image for a vision model. Nothing here knows how the model is laid out.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from workbench.errors import ModelError

SavedDtype = Literal["compute", "float32", "int64", "bool"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One trained tensor of a block.

    Args:
        name: Its name inside the block, e.g. "attn.qkv.weight".
        shape: Its whole shape.
        tp_dim: The dim that tensor parallelism may cut, None where it must not be cut.
        ep_dim: The dim that expert parallelism may cut, None where it must not be cut.
        tied_to: The full name ("block.name") of the tensor that this one shares memory
            with; a tied parameter adds no weights of its own on the same rank.
        decay: Whether weight decay applies to it.
    """

    name: str
    shape: tuple[int, ...]
    tp_dim: int | None = None
    ep_dim: int | None = None
    tied_to: str | None = None
    decay: bool = True

    @property
    def num_elements(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One tensor that autograd keeps from the forward for the backward, per sample.

    Args:
        kind: What it is, e.g. "norm1.input", "attn.qkv", "mlp.hidden".
        num_elements: Elements per sample, before any split.
        dtype: "compute" follows the layout's precision, else the fixed dtype.
        cut_by_tp: Whether tensor parallelism divides it.
        cut_by_sp: Whether sequence parallelism (beside tp) divides it.
        per_sample: False where one copy serves the whole batch.
    """

    kind: str
    num_elements: int
    dtype: SavedDtype = "compute"
    cut_by_tp: bool = False
    cut_by_sp: bool = False
    per_sample: bool = True


@dataclass(frozen=True, kw_only=True)
class Block:
    """A run of equal layers, in execution order.

    Args:
        name: Its name in the net, e.g. "embedding", "layers", "head".
        kind: What it is, e.g. "embedding", "transformer", "norm", "head".
        parameters: The tensors of *one* repeat.
        forward_flops: FLOPs of one repeat's forward per sample (a multiply-add is two).
        saved: What one repeat keeps for the backward, per sample.
        boundary_elements: Elements of one repeat's output per sample.
        repeat: How many equal layers follow one another.
        indexed: Whether the net keeps the repeats in a list, so that the names of
            their tensors carry an index ("layers.0.norm1.weight").
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    forward_flops: int
    saved: tuple[Saved, ...]
    boundary_elements: int
    repeat: int = 1
    indexed: bool = False

    def __post_init__(self) -> None:
        if self.repeat < 1:
            raise ModelError(f"block {self.name!r} repeats {self.repeat} times")
        if self.repeat > 1 and not self.indexed:
            raise ModelError(f"block {self.name!r} repeats, so its names need an index")

    def prefix(self, repeat: int) -> str:
        """Return what the names of one repeat's tensors begin with, dot included."""
        return f"{self.name}.{repeat}." if self.indexed else f"{self.name}."

    @property
    def num_parameters(self) -> int:
        """Trained elements of all repeats, tied tensors counted where they are owned."""
        return self.repeat * sum(
            p.num_elements for p in self.parameters if p.tied_to is None
        )


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model as a list of blocks in execution order.

    Args:
        name: What people call it, e.g. "gpt-10m".
        family: Which preset or tracer made it: "gpt", "llama", ...
        blocks: The blocks in execution order.
        tokens_per_sample: Sequence length; 1 where a sample is not a sequence.
        hyper: The architecture's own numbers by their usual names (hidden, num_heads,
            num_layers, vocab_size, ...), enough to build the net again.
        source: Where the shapes come from.
    """

    name: str
    family: str
    blocks: tuple[Block, ...]
    tokens_per_sample: int = 1
    hyper: tuple[tuple[str, int | float | bool | str], ...] = field(default=())
    source: str = ""

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ModelError(f"model {self.name!r} has no blocks")
        names = [block.name for block in self.blocks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ModelError(f"model {self.name!r} names blocks twice: {twice}")

    @property
    def num_parameters(self) -> int:
        """Trained elements, tied tensors counted once."""
        return sum(block.num_parameters for block in self.blocks)

    @property
    def forward_flops(self) -> int:
        """FLOPs of one forward per sample."""
        return sum(block.repeat * block.forward_flops for block in self.blocks)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield full names and tensors as the built net's `named_parameters()` does.

        Tied tensors are left out: torch names a shared tensor once, where it is owned.
        """
        for block in self.blocks:
            for repeat in range(block.repeat):
                for parameter in block.parameters:
                    if parameter.tied_to is None:
                        yield block.prefix(repeat) + parameter.name, parameter

    def number(self, name: str) -> int:
        """Return one of the architecture's own whole numbers.

        Raises:
            ModelError: The model has no such number.
        """
        for key, value in self.hyper:
            if key == name and isinstance(value, int):
                return value
        known = ", ".join(key for key, _ in self.hyper)
        raise ModelError(
            f"model {self.name!r} has no number {name!r}", hint=f"it has {known}"
        )

    def to_json(self) -> str:
        """Serialise; `from_json` gives an equal object back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ModelError: The text is not a model.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            blocks = tuple(
                Block(
                    **{
                        **block,
                        "parameters": tuple(
                            Parameter(**{**p, "shape": tuple(p["shape"])})
                            for p in block["parameters"]
                        ),
                        "saved": tuple(Saved(**s) for s in block["saved"]),
                    }
                )
                for block in raw.pop("blocks")
            )
            hyper = tuple((str(key), value) for key, value in raw.pop("hyper"))
            return cls(blocks=blocks, hyper=hyper, **raw)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"not a model in JSON: {error}") from error
