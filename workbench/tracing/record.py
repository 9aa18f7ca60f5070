"""What one forward under fake tensors tells of each module: FLOPs, saved bytes, output."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from workbench.tracing.flops import missing_formulas


@dataclass
class Call:
    """One execution of a unit, as totals over the example batch.

    Args:
        path: The unit's name in the module; "" for what runs outside every unit.
        flops: Forward FLOPs.
        saved: (where it was saved, dtype) -> elements kept for the backward.
        output_elements: Elements of all tensors that it returned.
    """

    path: str
    flops: int = 0
    saved: dict[tuple[str, torch.dtype], int] = field(default_factory=dict)
    output_elements: int = 0


class Recorder:
    """Listens to one forward: which unit runs, what it computes, saves and returns.

    Args:
        module: The module that will run.
        units: Names of the modules whose executions are told apart.
    """

    def __init__(self, module: nn.Module, units: frozenset[str]) -> None:
        self.calls: list[Call] = []
        self._module = module
        self._units = units
        self._running: list[Call] = []
        self._stack: list[str] = []
        self._seen: set[int] = set()
        self._flops = FlopCounterMode(display=False, custom_mapping=missing_formulas())
        self._flops_before: list[int] = []

    @contextmanager
    def listen(self, owned: set[int]) -> Iterator[None]:
        """Record everything inside; storages in `owned` (weights, inputs) are not saves."""
        self._seen |= owned
        handles = [
            hook
            for name, child in self._module.named_modules()
            for hook in self._hook(name, child)
        ]
        try:
            with self._flops, saved_tensors_hooks(self._save, _unpack):
                yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def total_flops(self) -> int:
        """FLOPs of everything that ran, inside units and outside."""
        return self._flops.get_total_flops()

    def _hook(self, name: str, child: nn.Module) -> list[Any]:
        def enter(_: nn.Module, __: Any) -> None:
            self._stack.append(name)
            if name in self._units:
                self._running.append(Call(path=name))
                self._flops_before.append(self.total_flops)

        def leave(_: nn.Module, __: Any, output: Any) -> None:
            self._stack.pop()
            if name in self._units:
                call = self._running.pop()
                call.flops = self.total_flops - self._flops_before.pop()
                call.output_elements = sum(t.numel() for t in tensors(output))
                self.calls.append(call)

        return [
            child.register_forward_pre_hook(enter),
            child.register_forward_hook(leave),
        ]

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata in self._seen:
            return tensor
        self._seen.add(storage._cdata)
        if not self._running:
            self._outside()
        unit = self._running[-1] if self._running else self.calls[-1]
        where = self._stack[-1] if self._stack else ""
        inside = where.removeprefix(unit.path).lstrip(".") or "out"
        elements = storage.nbytes() // tensor.dtype.itemsize
        key = (inside, tensor.dtype)
        unit.saved[key] = unit.saved.get(key, 0) + elements
        return tensor

    def _outside(self) -> None:
        """Give what is saved between units to the unit before, or to a nameless one."""
        if not self.calls:
            self.calls.append(Call(path=""))


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor of a nest of tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors(inner)
