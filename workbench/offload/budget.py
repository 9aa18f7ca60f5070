"""A CPU-only rank's device budget, enforced by the kernel.

`RLIMIT_DATA` limits private writable memory: the heap, in which torch's CPU tensors
live. Shared mappings (the host and disk tiers) are outside it. What does not fit fails
as torch's own allocator error, which a program can catch and survive.
"""

import ctypes
import importlib
import resource
from pathlib import Path

import torch

from workbench.errors import OffloadError
from workbench.units import bytes_text

_M_MMAP_THRESHOLD = -3
_BLOCK_BYTES = 128 * 1024


def enforce(cap_bytes: int) -> int:
    """Let this process take at most `cap_bytes` of private memory more than now.

    Call it once torch is imported and before the model is built. From then on freed
    blocks above 128 KiB return to the kernel at once, so that what counts against the
    cap is what lives, not what the heap keeps in reserve.

    Returns:
        The limit on VmData in bytes.

    Raises:
        OffloadError: A cap below one byte, or a lower limit set by somebody else.
    """
    if cap_bytes < 1:
        raise OffloadError(f"a device budget of {cap_bytes} bytes holds nothing")
    if torch.cuda.is_available():
        share = cap_bytes / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
        return cap_bytes
    # Every torch optimizer imports it when made; modules are no part of the training.
    importlib.import_module("torch._dynamo")
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)
    limit_bytes = status_bytes("VmData") + cap_bytes
    _, hard_bytes = resource.getrlimit(resource.RLIMIT_DATA)
    if hard_bytes != resource.RLIM_INFINITY and limit_bytes > hard_bytes:
        raise OffloadError(
            f"a budget of {bytes_text(cap_bytes)} ends above this process's own hard "
            f"limit of {bytes_text(hard_bytes)}",
            hint="raise the hard limit (ulimit -Hd), or ask for less",
        )
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard_bytes))
    return limit_bytes


def lift() -> None:
    """Remove the budget again."""
    _, hard_bytes = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard_bytes, hard_bytes))


def room_bytes() -> int:
    """Return what this process may still take, or a huge number where none limits it."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit_bytes == resource.RLIM_INFINITY:
        return 1 << 62
    return limit_bytes - status_bytes("VmData")


def status_bytes(field: str, *, pid: int | None = None) -> int:
    """Return one size of `/proc/<pid>/status`, e.g. "VmData" or "RssAnon".

    Args:
        field: Name of the line.
        pid: Of another process; this one's if None.

    Raises:
        OffloadError: No such line.
    """
    path = Path("/proc") / ("self" if pid is None else str(pid)) / "status"
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OffloadError(f"{path} has no line {field!r}")
