"""Makes torch's own process groups: gloo on CPU, NCCL beside it where GPUs are."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

BackendName = Literal["gloo", "nccl"]

#: Long, since hangs are noticed by whoever started the ranks, not by a timer.
GROUP_TIMEOUT = timedelta(minutes=30)


def gloo(
    store: Store, rank: int, size: int, *, interface: str | None
) -> dist.ProcessGroupGloo:
    """Make a gloo backend bound to one interface, or to loopback where None is named.

    gloo has no authentication: it must never listen on an address nobody asked for.
    """
    kind: Any = dist.ProcessGroupGloo  # torch's stubs leave its options out
    options = kind._Options()
    device = (
        kind.create_device(hostname="127.0.0.1")
        if interface is None
        else kind.create_device(interface=interface)
    )
    options._devices = [device]
    options._timeout = GROUP_TIMEOUT
    made: dist.ProcessGroupGloo = kind(store, rank, size, options)
    return made


def nccl(store: Store, rank: int, size: int) -> Any:
    """Make an NCCL backend; its interface follows NCCL_SOCKET_IFNAME."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = GROUP_TIMEOUT
    return dist.ProcessGroupNCCL(store, rank, size, options)


def make_group(
    store: Store,
    rank: int,
    size: int,
    *,
    backend: BackendName,
    interface: str | None,
) -> dist.ProcessGroup:
    """Make a real group: CPU tensors go by gloo, CUDA tensors by NCCL where asked."""
    kinds = dist.ProcessGroup.BackendType
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(kinds.NCCL if backend == "nccl" else kinds.GLOO)
    make_gloo: Callable[[], Any] = lambda: gloo(  # noqa: E731
        PrefixStore("cpu/", store), rank, size, interface=interface
    )
    group._register_backend(torch.device("cpu"), kinds.GLOO, make_gloo())
    if backend == "nccl":
        made = nccl(PrefixStore("cuda/", store), rank, size)
        group._register_backend(torch.device("cuda"), kinds.NCCL, made)
    return group
