"""Lets torch's functions and modules work on split tensors, or says which cannot.

Torch asks any argument that has `__torch_function__` to run the call. So a net's own
code stays as it is, and what would need the whole is refused by name.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import torch
from torch.utils._pytree import register_pytree_node

from workbench.errors import LayoutError
from workbench.strategies.spatial import norms, reductions, sliding, transposed
from workbench.strategies.spatial.halo import recut
from workbench.strategies.spatial.split import Split

Handler = Callable[..., Any]


class SpatialTensor(Split):
    """A tensor cut over spatial axes that torch's functions accept.

    `shape` and `size()` are those of the whole, `local` is what this rank holds.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run a torch function that has a split tensor among its arguments."""
        del types
        return run(func.__name__.strip("_"), func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(torch.Tensor, name)
        if callable(method):
            return partial(self._call, name, method)
        return getattr(self.local, name)

    def _call(self, name: str, method: Handler, *args: Any, **kwargs: Any) -> Any:
        return run(name.strip("_"), method, (self, *args), kwargs)

    def size(self, dim: int | None = None) -> Any:
        """Return the whole's shape, or one extent of it."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of dims."""
        return self.local.dim()

    def __add__(self, other: Any) -> Self:
        return self._call("add", torch.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._call("sub", torch.sub, other)

    def __rsub__(self, other: Any) -> Self:
        return self._call("rsub", torch.rsub, other)

    def __mul__(self, other: Any) -> Self:
        return self._call("mul", torch.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self._call("div", torch.div, other)

    def __neg__(self) -> Self:
        return self._call("neg", torch.neg)


#: Element by element, so that each rank's part of the result is made of its own parts.
POINTWISE = frozenset(
    [
        "abs",
        "add",
        "clamp",
        "clamp_min",
        "clone",
        "contiguous",
        "detach",
        "div",
        "double",
        "elu",
        "exp",
        "float",
        "gelu",
        "half",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "leaky_relu",
        "log",
        "log1p",
        "logsigmoid",
        "mish",
        "mul",
        "neg",
        "pow",
        "reciprocal",
        "relu",
        "relu6",
        "rsqrt",
        "rsub",
        "selu",
        "sigmoid",
        "silu",
        "softplus",
        "sqrt",
        "square",
        "sub",
        "tanh",
        "to",
        "true_divide",
        "type",
        "prelu",
    ]
)

#: Along dims that must not be cut.
ALONG = frozenset(["softmax", "log_softmax", "cat", "concat", "chunk", "glu"])

HANDLERS: Mapping[str, Handler] = {
    **{f"conv{n}d": sliding.convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": transposed.transposed_convolution for n in (1, 2, 3)},
    **{f"max_pool{n}d": sliding.max_pool for n in (1, 2, 3)},
    **{f"avg_pool{n}d": sliding.average_pool for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": reductions.adaptive_average_pool for n in (1, 2, 3)},
    "batch_norm": norms.batch_norm,
    "instance_norm": norms.instance_norm,
    "group_norm": norms.group_norm,
    "sum": reductions.total,
    "mean": reductions.mean,
    "cross_entropy": reductions.cross_entropy,
    "mse_loss": reductions.mse_loss,
    "l1_loss": reductions.l1_loss,
    "binary_cross_entropy_with_logits": reductions.binary_cross_entropy_with_logits,
}


def run(name: str, func: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one torch function on split tensors.

    Raises:
        LayoutError: A function that would need the whole, by name.
    """
    if name in HANDLERS:
        return HANDLERS[name](*args, **kwargs)
    if name == "interpolate":
        return _interpolate(*args, **kwargs)
    if name == "dropout" and not _drops(*args, **kwargs):
        return args[0]
    if name in POINTWISE or name in ALONG:
        return _locally(name, func, args, kwargs)
    raise LayoutError(
        f"{name} cannot be run on a tensor that is cut over spatial axes",
        hint="gather it first with workbench.strategies.spatial.whole(x)",
    )


def _drops(
    x: Split,
    p: float = 0.5,
    training: bool = True,  # noqa: FBT001, FBT002 torch's signature
    inplace: bool = False,  # noqa: FBT001, FBT002 torch's signature
) -> bool:
    del x, inplace
    return training and p > 0


def _locally(
    name: str, func: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a function on the local parts, all cut as the first of them is."""
    first = [*_splits(args), *_splits(tuple(kwargs.values()))][0]
    if name in ALONG:
        default = {"cat": 0, "concat": 0, "chunk": 0, "glu": -1}.get(name, 1)
        position = 2 if name == "chunk" else 1
        dim = kwargs.get("dim", args[position] if len(args) > position else default)
        if first.cut_of(dim) is not None:
            raise LayoutError(f"{name} along dim {dim}, which is cut")
    local = _local((args, kwargs), first)
    result = func(*local[0], **local[1])
    if isinstance(result, torch.Tensor):
        return _held(name, first, result)
    return tuple(_held(name, first, part) for part in result)


def _held(name: str, split: Split, result: torch.Tensor) -> Split:
    for cut in split.cuts:
        if result.shape[cut.dim] != split.local.shape[cut.dim]:
            raise LayoutError(
                f"{name} with a plain tensor that reaches over dim {cut.dim}, which is "
                "cut",
                hint="cut that tensor too",
            )
    return split.holding(result)


def _splits(value: Any) -> list[Split]:
    if isinstance(value, Split):
        return [value]
    if isinstance(value, list | tuple):
        return [split for part in value for split in _splits(part)]
    return []


def _local(value: Any, first: Split) -> Any:
    if isinstance(value, Split):
        return recut(value, first.cuts).local
    if isinstance(value, dict):
        return {key: _local(part, first) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_local(part, first) for part in value)
    return value


def _interpolate(
    x: Split,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    **options: Any,
) -> Split:
    """Enlarge by whole factors, each element into a block: needs no neighbours.

    Raises:
        LayoutError: Another mode, or a factor that is not whole.
    """
    count = x.local.dim() - sliding.FIRST
    if size is not None:
        sizes = sliding.each(size, count)
        factors = [
            wanted / extent for wanted, extent in zip(sizes, x.shape[2:], strict=True)
        ]
    else:
        given = (
            scale_factor if isinstance(scale_factor, list | tuple) else [scale_factor]
        )
        factors = list(given) * (count if len(given) == 1 else 1)
    if not mode.startswith("nearest") or any(f != int(f) for f in factors):
        raise LayoutError(
            f"interpolate mode {mode!r} by {factors} over a split tensor",
            hint="nearest by whole factors, or a transposed convolution",
        )
    del options
    local = x.local
    for place, factor in enumerate(factors):
        # Torch's interpolate refuses a rank that holds nothing.
        local = local.repeat_interleave(int(factor), sliding.FIRST + place)
    cuts = [
        type(cut)(
            dim=cut.dim,
            axis=cut.axis,
            sizes=tuple(n * int(factors[cut.dim - 2]) for n in cut.sizes),
        )
        for cut in x.cuts
    ]
    return x.holding(local, cuts)


# FSDP2 and checkpointing look for tensors inside what modules pass on.
register_pytree_node(
    SpatialTensor,
    lambda x: ([x.local], x),
    lambda parts, x: x.holding(next(iter(parts))),
    serialized_type_name="workbench.strategies.spatial.SpatialTensor",
)
