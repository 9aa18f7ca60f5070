"""`trace`: run a module's forward under fake tensors and read off its ModelSpec."""

from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from workbench.errors import ModelError
from workbench.model import Block, ModelSpec, Parameter, Saved
from workbench.model.spec import SavedDtype
from workbench.tracing.record import Call, Recorder, tensors
from workbench.tracing.units import find_units

_FIXED: dict[torch.dtype, SavedDtype] = {
    torch.float32: "float32",
    torch.int64: "int64",
    torch.bool: "bool",
}


class _Owned(NamedTuple):
    """A weight of a call: its name inside the unit, and where it was met before."""

    name: str
    tensor: nn.Parameter
    tied_to: str | None


def trace(
    module: nn.Module, example_inputs: tuple[Any, ...], *, name: str | None = None
) -> ModelSpec:
    """Describe any module as a `ModelSpec`, without allocating it.

    The forward runs under fake tensors of device "cpu", so a module built under
    `torch.device("meta")` costs no memory. What autograd keeps is recorded by saved-tensor
    hooks, each storage once, weights and inputs left out; FLOPs are torch's own count
    (attention full, not causal). Equal neighbours in execution order become one block
    that repeats; a module that runs twice owns its weights in its first block.

    Args:
        module: The module; on "meta" or on any real device.
        example_inputs: Positional inputs; dim 0 of every tensor is the batch. Shapes and
            dtypes matter, values do not.
        name: What to call the model; the class name otherwise.

    Raises:
        ModelError: The module's forward fails on these inputs, or needs a value of a
            tensor (data-dependent control flow); with the line that failed.
    """
    batch = _batch_size(example_inputs)
    recorder = Recorder(module, find_units(module))
    _run(module, example_inputs, recorder)
    blocks = _merge(
        [
            _block(call, module, batch, owned)
            for call, owned in _owners(recorder, module)
        ]
    )
    return ModelSpec(
        name=name or type(module).__name__.lower(),
        family="traced",
        blocks=_unique_names(blocks),
        tokens_per_sample=_tokens(example_inputs),
        source="traced under fake tensors",
    )


def _run(module: nn.Module, inputs: tuple[Any, ...], recorder: Recorder) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        state = {
            key: torch.empty(
                t.shape, dtype=t.dtype, device="cpu", requires_grad=t.requires_grad
            )
            for key, t in [*module.named_parameters(), *module.named_buffers()]
        }
        fakes = tuple(_fake(value) for value in inputs)
        owned = {t.untyped_storage()._cdata for t in [*state.values(), *tensors(fakes)]}
        try:
            with recorder.listen(owned):
                # The output is kept until the end: it keeps the graph, and with it
                # every saved storage, alive, so that no address is used twice.
                kept = torch.func.functional_call(module, state, fakes)
        except Exception as error:
            raise ModelError(
                f"{type(module).__name__} cannot be traced on these inputs: {error}",
                hint="run it once on real inputs of these shapes; branches on tensor"
                " values cannot be traced",
            ) from error
        del kept


def _fake(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
        return torch.empty(value.shape, dtype=value.dtype, device="cpu")
    return value


def _batch_size(inputs: tuple[Any, ...]) -> int:
    sizes = {t.shape[0] for t in tensors(inputs) if t.dim() > 0}
    if len(sizes) != 1 or 0 in sizes:
        raise ModelError(
            f"the batch is dim 0 of every input; these inputs have sizes {sorted(sizes)}",
            hint="give all inputs the same dim 0, at least 1",
        )
    return int(sizes.pop())


def _tokens(inputs: tuple[Any, ...]) -> int:
    first = next(tensors(inputs))
    return int(first.shape[1]) if first.dim() == 2 and first.dtype == torch.int64 else 1


def _owners(recorder: Recorder, module: nn.Module) -> list[tuple[Call, list[_Owned]]]:
    """Give each call its weights; later calls and ties point to the first."""
    every = dict(module.named_parameters(remove_duplicate=False))
    owner: dict[int, str] = {}
    result: list[tuple[Call, list[_Owned]]] = []
    for call in recorder.calls:
        owned = []
        for full in [key for key in every if call.path and _inside(key, call.path)]:
            tied_to = owner.get(id(every[full]))
            owner.setdefault(id(every[full]), full)
            owned.append(
                _Owned(full.removeprefix(f"{call.path}."), every[full], tied_to)
            )
        result.append((call, owned))
    rest = [_Owned(key, p, None) for key, p in every.items() if id(p) not in owner]
    if rest:
        first = result.pop(0)[0] if result and not result[0][0].path else Call(path="")
        result.insert(0, (first, rest))
    return result


def _inside(name: str, path: str) -> bool:
    return name.startswith(f"{path}.")


def _block(
    call: Call,
    module: nn.Module,
    batch: int,
    owned: list[_Owned],
) -> Block:
    compute = next((p.dtype for p in module.parameters()), torch.float32)
    return Block(
        name=call.path or "root",
        kind=type(module.get_submodule(call.path)).__name__.lower(),
        parameters=tuple(
            Parameter(
                name=w.name,
                shape=tuple(w.tensor.shape),
                tied_to=w.tied_to,
                decay=w.tensor.dim() > 1,
            )
            for w in owned
        ),
        forward_flops=-(-call.flops // batch),
        saved=tuple(
            Saved(
                kind=kind,
                num_elements=-(-count // batch),
                dtype="compute" if dtype == compute else _FIXED.get(dtype, "compute"),
            )
            for (kind, dtype), count in call.saved.items()
        ),
        boundary_elements=-(-call.output_elements // batch),
    )


def _merge(blocks: list[Block]) -> list[Block]:
    """Join equal neighbours `chain.0`, `chain.1`, ... into one block that repeats."""

    def key(block: Block) -> tuple[str, Block]:
        chain = block.name.rpartition(".")[0]
        return (chain, replace(block, name=chain))

    merged = []
    for (chain, _), equal in groupby(blocks, key=key):
        run = list(equal)
        in_order = [b.name for b in run] == [f"{chain}.{i}" for i in range(len(run))]
        if in_order and len(run) > 1:
            merged.append(replace(run[0], name=chain, repeat=len(run), indexed=True))
        else:
            merged += run
    return merged


def _unique_names(blocks: list[Block]) -> tuple[Block, ...]:
    seen: dict[str, int] = {}
    named = []
    for block in blocks:
        count = seen[block.name] = seen.get(block.name, 0) + 1
        name = block.name if count == 1 else f"{block.name}#{count}"
        named.append(replace(block, name=name))
    return tuple(named)
