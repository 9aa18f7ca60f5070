"""Values between notebook and ranks; a notebook without torch receives arrays."""

import sys
from collections.abc import Sequence
from typing import Any

from workbench.errors import SessionError
from workbench.protocol import values

#: Importing one of these to open a value would take seconds and 150 MB.
_HEAVY = (
    "torch",
    "workbench.training",
    "workbench.strategies",
    "workbench.collectives",
)


def to_bytes(value: Any) -> tuple[bytes, ...]:
    """Return a value's bytes for the ranks."""
    return values.dump(value, _tensor_to_bytes)


def from_bytes(parts: Sequence[bytes]) -> Any:
    """Return the value in a rank's bytes; tensors as arrays where torch is not loaded.

    Raises:
        SessionError: The value needs a module that this notebook has not loaded.
    """
    return values.load(parts, _bytes_to_tensor, _check_name)


def _tensor_to_bytes(value: Any) -> tuple[str, tuple[int, ...], bytes] | None:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    plain = value.detach().cpu().contiguous()
    raw = plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return str(plain.dtype).removeprefix("torch."), tuple(plain.shape), raw


def _bytes_to_tensor(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None:
        kind = getattr(torch, dtype)
        if not data:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(bytearray(data), dtype=kind).reshape(shape)
    import numpy as np  # only who receives an array waits for it

    if dtype == "bfloat16":
        # The upper half of a float32; numpy has no such type.
        wide = np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(bytearray(data), dtype=np.dtype(dtype)).reshape(shape)


def _check_name(module: str, name: str) -> None:
    """Refuse what would load a heavy module into the notebook."""
    heavy = any(module == each or module.startswith(each + ".") for each in _HEAVY)
    if heavy and module not in sys.modules:
        raise SessionError(
            f"the value holds a {module}.{name}, and this notebook has not loaded "
            f"{module.partition('.')[0]}",
            hint=f"import {module} first, or get a part of it, e.g. its numbers",
        )
