"""A person's values as bytes: pickle 5 with buffers beside it, tensors as raw memory.

Both ends are processes of one user that have authenticated each other, so pickle is
acceptable here; it is never used on bytes that came from a file. A tensor becomes a
note (dtype, shape, buffer) instead of a pickle, so that a notebook without torch can
still receive it.
"""

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

#: Takes an object; returns (dtype name, shape, bytes) for a tensor, None for others.
TensorToBytes = Callable[[Any], tuple[str, tuple[int, ...], bytes] | None]
#: The way back: dtype name, shape and bytes to a tensor or an array.
BytesToTensor = Callable[[str, tuple[int, ...], bytes], Any]
#: Raises for a class or function that must not be imported here.
CheckName = Callable[[str, str], None]


def dump(value: Any, tensor_to_bytes: TensorToBytes) -> tuple[bytes, ...]:
    """Return a value as bytes: the pickle first, its buffers after it.

    Raises:
        Exception: Whatever the value's own pickling raises.
    """
    target = io.BytesIO()
    buffers: list[bytes] = []
    _Pickler(target, buffers, tensor_to_bytes).dump(value)
    return (target.getvalue(), *buffers)


def load(
    parts: Sequence[bytes], bytes_to_tensor: BytesToTensor, check_name: CheckName
) -> Any:
    """Return the value in the bytes that `dump` made."""
    return _Unpickler(parts, bytes_to_tensor, check_name).load()


class _Pickler(pickle.Pickler):
    def __init__(
        self, target: io.BytesIO, buffers: list[bytes], tensor_to_bytes: TensorToBytes
    ) -> None:
        super().__init__(target, protocol=5, buffer_callback=self._keep)
        self._buffers = buffers
        self._tensor_to_bytes = tensor_to_bytes

    def _keep(self, buffer: pickle.PickleBuffer) -> None:
        self._buffers.append(b"o" + buffer.raw())

    def persistent_id(self, obj: Any) -> Any:
        described = self._tensor_to_bytes(obj)
        if described is None:
            return None
        dtype, shape, data = described
        self._buffers.append(b"t" + data)
        return ("tensor", dtype, shape, len(self._buffers))


class _Unpickler(pickle.Unpickler):
    def __init__(
        self,
        parts: Sequence[bytes],
        bytes_to_tensor: BytesToTensor,
        check_name: CheckName,
    ) -> None:
        # The first byte of a part tells pickle's own buffers from tensors'.
        own = [memoryview(part)[1:] for part in parts[1:] if part[:1] == b"o"]
        super().__init__(io.BytesIO(parts[0]), buffers=[bytearray(b) for b in own])
        self._parts = parts
        self._bytes_to_tensor = bytes_to_tensor
        self._check_name = check_name

    def persistent_load(self, pid: Any) -> Any:
        _, dtype, shape, position = pid
        return self._bytes_to_tensor(dtype, shape, self._parts[position][1:])

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        self._check_name(module_name, global_name)
        return super().find_class(module_name, global_name)
