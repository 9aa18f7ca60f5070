"""Values of a rank as bytes, and back."""

from typing import Any

import torch
from torch import Tensor

from workbench.protocol import values

#: A last expression larger than this stays on its rank; `session.get` fetches it.
MAX_LAST_BYTES = 1 << 20


def to_bytes(value: Any) -> tuple[bytes, ...]:
    """Return a value's bytes, tensors as raw memory."""
    return values.dump(value, _tensor_to_bytes)


def from_bytes(parts: tuple[bytes, ...]) -> Any:
    """Return the value that a notebook sent."""
    return values.load(parts, _bytes_to_tensor, _allow)


def value_parts(value: Any) -> tuple[bytes, ...]:
    """Return a last expression's bytes; nothing where it is too large or cannot travel."""
    if value is None or not _is_small(value):
        return ()
    try:
        parts = to_bytes(value)
    except Exception:  # whatever pickling the person's object raises
        return ()
    return parts if sum(map(len, parts)) <= MAX_LAST_BYTES else ()


def _is_small(value: Any) -> bool:
    """Tell large arrays without copying them."""
    size = getattr(value, "nbytes", 0)
    return not isinstance(size, int) or size <= MAX_LAST_BYTES


def _tensor_to_bytes(value: Any) -> tuple[str, tuple[int, ...], bytes] | None:
    if not isinstance(value, Tensor):
        return None
    if type(value) not in (Tensor, torch.nn.Parameter):
        raise TypeError(
            f"a {type(value).__name__} cannot travel; send its local tensor"
        )
    plain = value.detach().cpu().contiguous()
    raw = plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return str(plain.dtype).removeprefix("torch."), tuple(plain.shape), raw


def _bytes_to_tensor(dtype: str, shape: tuple[int, ...], data: bytes) -> Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    if not data:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(shape)


def _allow(module: str, name: str) -> None:
    """Allow every class: the notebook may run any code here anyway."""
