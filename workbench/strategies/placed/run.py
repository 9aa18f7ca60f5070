"""Running a module whose parameters lie on several ranks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from workbench.errors import LayoutError

#: What asks for a value rather than for another tensor.
_VALUES = frozenset(
    {
        torch.Tensor.__bool__,
        torch.Tensor.__float__,
        torch.Tensor.__int__,
        torch.Tensor.__index__,
        torch.Tensor.item,
        torch.Tensor.tolist,
    }
)
_DEVICE = torch.Tensor.device.__get__


def place(
    net: nn.Module,
    owners: Mapping[str, int],
    *,
    group: dist.ProcessGroup,
    device: torch.device | None = None,
) -> "Placed":
    """Let each rank keep its modules' parameters; the others' go to the meta device.

    All ranks must hold the same whole values. A parameter that several modules share
    lies with the first.

    Args:
        net: Any module, in place.
        owners: By module name the rank that holds all below it; the longest name that
            fits decides. See `balance`.
        group: The ranks.
        device: Where this rank computes.

    Raises:
        LayoutError: A parameter without an owner, or an owner that is not there.
    """
    placed = Placed(group=group, device=device or torch.device("cpu"))
    remade: dict[int, Any] = {}
    for prefix, module in net.named_modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is None:
                    continue
                if id(tensor) not in remade:
                    full = f"{prefix}.{name}".lstrip(".")
                    owner = _owner(full, owners, group.size())
                    remade[id(tensor)] = placed.keep(tensor, owner)
                # Torch's stubs tell parameters and buffers apart here.
                table[name] = remade[id(tensor)]
    return placed


def _owner(name: str, owners: Mapping[str, int], num_ranks: int) -> int:
    above = name
    while above:
        above = above.rpartition(".")[0]
        if above in owners:
            if not 0 <= owners[above] < num_ranks:
                raise LayoutError(
                    f"{above or 'the net'} lies on rank {owners[above]} of {num_ranks}"
                )
            return owners[above]
    raise LayoutError(
        f"nobody holds {name}",
        hint=f"name its module: {{{name.rpartition('.')[0]!r}: 0}}",
    )


class Placed(TorchFunctionMode):
    """A net's parameters on several ranks, and what travels between them.

    Args:
        group: The ranks.
        device: Where this rank computes.
    """

    def __init__(self, *, group: dist.ProcessGroup, device: torch.device) -> None:
        super().__init__()
        self.group = group
        self.rank = group.rank()
        self.device = device
        self._owners = WeakTensorKeyDictionary()
        self._copies = WeakTensorKeyDictionary()
        self._held: list[nn.Parameter] = []
        self._sent: list[torch.Tensor] = []
        self._works: list[tuple[dist.Work, torch.Tensor]] = []

    def keep(self, tensor: torch.Tensor, owner: int) -> torch.Tensor:
        """Return a parameter or buffer as this rank holds it."""
        place = self.device if owner == self.rank else torch.device("meta")
        held = tensor.detach().to(place)
        if isinstance(tensor, nn.Parameter):
            held = nn.Parameter(held, requires_grad=tensor.requires_grad)
            if owner == self.rank:
                self._held.append(held)
        self._owners[held] = owner
        return held

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that this rank holds."""
        return tuple(self._held)

    def owner(self, tensor: torch.Tensor) -> int | None:
        """Return the rank that has a tensor's values; None where all have."""
        found: int | None = self._owners.get(tensor)
        return found

    def run(self, forward: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run some code over the ranks; its result has values on one of them only."""
        with self:
            return forward()

    def backward(self, losses: Sequence[torch.Tensor]) -> None:
        """Run the backward of the sum of some losses, made by `run` on all ranks.

        Every rank receives gradients for what it sent, the last sent first.
        """
        mine = [loss for loss in losses if self.owner(loss) == self.rank]
        roots = [*mine, *self._sent]
        self._sent = []
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
        self._finish()

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give every rank a tensor's values, without gradients."""
        owner = self.owner(tensor)
        if owner is None:
            return tensor
        told = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        if owner == self.rank:
            told.copy_(tensor.detach())
        dist.broadcast(told, group=self.group, group_src=owner)
        return told

    # Operations -------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Carry an operation out where its parameters lie."""
        del types
        kwargs = kwargs or {}
        tensors = [
            leaf
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        ]
        owned = [tensor for tensor in tensors if self.owner(tensor) is not None]
        if not owned:
            return func(*args, **kwargs)
        if func is _DEVICE:
            return self.device
        if func in _VALUES:
            return func(self.value(args[0]))
        owner = self._decide(owned)
        args, kwargs = tree_map_only(
            torch.Tensor, lambda tensor: self._at(tensor, owner), (args, kwargs)
        )
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._owners[leaf] = owner
        return result

    def _decide(self, owned: Sequence[torch.Tensor]) -> int:
        """Where a parameter lies, else where the first argument does."""
        first = next((t for t in owned if isinstance(t, nn.Parameter)), owned[0])
        owner = self.owner(first)
        assert owner is not None, "only tensors with an owner are asked"
        return owner

    def _at(self, tensor: torch.Tensor, owner: int) -> torch.Tensor:
        """Return an argument as this rank needs it for an operation of `owner`."""
        holder = self.owner(tensor)
        if holder is not None and holder != owner:
            tensor = self._moved(tensor, holder, owner)
        if self.rank == owner or tensor.is_meta:
            return tensor
        return _ghost(tensor)

    def _moved(self, tensor: torch.Tensor, holder: int, owner: int) -> torch.Tensor:
        """Bring a tensor to another rank, once for as long as it does not change."""
        copies = self._copies.setdefault(tensor, {})
        version, copy = copies.get(owner, (None, None))
        if version != tensor._version:
            copy = self._sent_on(tensor, holder, owner)
            self._owners[copy] = owner
            copies[owner] = (tensor._version, copy)
        assert copy is not None, "a copy of this version was made"
        return copy

    def _sent_on(self, tensor: torch.Tensor, holder: int, owner: int) -> torch.Tensor:
        if self.rank == holder:
            token = _Send.apply(tensor, self, owner)
            if token.requires_grad:
                self._sent.append(token)
            return _ghost(tensor)
        if self.rank != owner:
            return _ghost(tensor)
        anchor = torch.empty(0, device=self.device, requires_grad=tensor.requires_grad)
        received: torch.Tensor = _Receive.apply(anchor, tensor, self, holder)
        return received

    # Messages ---------------------------------------------------------------------

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """Let a copy go; the caller does not wait."""
        out = tensor.detach().clone(memory_format=torch.contiguous_format)
        work = dist.isend(out, group=self.group, group_dst=to)
        assert work is not None, "this rank is in the group"
        self._works.append((work, out))

    def receive(self, like: torch.Tensor, sender: int) -> torch.Tensor:
        """Wait for a tensor of known shape."""
        into = torch.empty(like.shape, dtype=like.dtype, device=self.device)
        dist.recv(into, group=self.group, group_src=sender)
        return into

    def _finish(self) -> None:
        for work, _ in self._works:
            work.wait()
        self._works = []


def _ghost(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's shape without its values; asks for gradients alike."""
    ghost = torch.empty_like(tensor, device="meta")
    if ghost.dtype.is_floating_point or ghost.dtype.is_complex:
        # Not a leaf, since operations in place may follow.
        return ghost.requires_grad_(tensor.requires_grad).view_as(ghost)
    return ghost


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, placed: Placed, to: int) -> torch.Tensor:
        ctx.route = (x.to("meta"), placed, to)
        placed.send(x, to)
        return x.new_empty(0, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        del grads  # of an empty token
        like, placed, to = ctx.route
        return placed.receive(like, to), None, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: torch.Tensor, like: torch.Tensor, placed: Placed, sender: int
    ) -> torch.Tensor:
        del anchor  # it only asks for the gradient
        ctx.route = (placed, sender)
        return placed.receive(like, sender)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        placed, sender = ctx.route
        placed.send(grads[0], sender)
        return grads[0].new_empty(0), None, None, None
