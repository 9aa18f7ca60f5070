"""Which module is split how: rules by name, and their application to a net."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from workbench.errors import LayoutError
from workbench.strategies.layers import Positions
from workbench.strategies.pieces import local
from workbench.strategies.tensor.edges import Edges
from workbench.strategies.tensor.modules import (
    ColumnLinear,
    RowLinear,
    SplitEmbedding,
    Twin,
    WholeLayerNorm,
    WholePositions,
    WholeRMSNorm,
)

#: "enter": the module's input becomes whole; "cut": its output is cut by tokens where
#: sequence parallelism is on; the others replace a module by its twin.
Placing = Literal["enter", "cut", "column", "row", "vocabulary", "whole"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How the modules of a name are split.

    Args:
        pattern: Of the module's name, with `*` and `?`.
        placing: What becomes of it.
    """

    pattern: str
    placing: Placing


#: For `strategies.nets`: attention and MLP are one region each, the head is another.
DECODER_RULES = (
    Rule(pattern="embedding", placing="cut"),
    Rule(pattern="embedding.tokens", placing="vocabulary"),
    Rule(pattern="embedding.positions", placing="whole"),
    Rule(pattern="*norm*", placing="whole"),
    Rule(pattern="*attn", placing="enter"),
    Rule(pattern="*mlp", placing="enter"),
    *(
        Rule(pattern=f"*attn.{name}", placing="column")
        for name in ("qkv", "q", "k", "v")
    ),
    *(Rule(pattern=f"*mlp.{name}", placing="column") for name in ("gate", "up")),
    Rule(pattern="*.proj", placing="row"),
    Rule(pattern="*.down", placing="row"),
    Rule(pattern="head", placing="enter"),
    Rule(pattern="head", placing="column"),
)

_TWINS: Mapping[tuple[str, type[nn.Module]], type[Twin]] = {
    ("column", nn.Linear): ColumnLinear,
    ("row", nn.Linear): RowLinear,
    ("vocabulary", nn.Embedding): SplitEmbedding,
    ("whole", Positions): WholePositions,
    ("whole", nn.LayerNorm): WholeLayerNorm,
    ("whole", nn.RMSNorm): WholeRMSNorm,
}


def split(
    module: nn.Module,
    rules: Sequence[Rule],
    mesh: DeviceMesh,
    *,
    sequence: bool,
    prefix: str = "",
) -> Edges:
    """Split a module in place over the mesh's one axis; sends nothing.

    All ranks must hold the same whole values. Parameters that modules share stay
    shared where both are split alike.

    Args:
        module: The net, or a part of it.
        rules: Applied to every module whose name a pattern fits.
        mesh: The axis' own mesh, of one dim.
        sequence: Whether tokens are split between the regions.
        prefix: The part's name in the net, with a dot at its end.

    Raises:
        LayoutError: A parameter that no rule places, by name.
    """
    edges = Edges(mesh, sequence=sequence)
    apply(module, rules, edges, prefix=prefix)
    return edges


def apply(
    module: nn.Module, rules: Sequence[Rule], edges: Edges, *, prefix: str = ""
) -> None:
    """Split a module in place by the edges of the net that it is a part of."""
    remade: dict[int, nn.Parameter] = {}
    for name, child in list(module.named_modules()):
        for rule in rules:
            if fnmatchcase(prefix + name, rule.pattern):
                child = _apply_rule(module, name, child, rule, edges, remade)  # noqa: PLW2901
    for name, parameter in module.named_parameters():
        if not hasattr(parameter, "placements"):
            raise LayoutError(
                f"no rule says how {prefix}{name} lies over the axis "
                f"{(edges.mesh.mesh_dim_names or ('',))[0]}",
                hint=f'Rule(pattern="{prefix}{name.rpartition(".")[0]}", '
                'placing="column"), or "row", "vocabulary", "whole"',
            )


def _apply_rule(
    root: nn.Module,
    name: str,
    module: nn.Module,
    rule: Rule,
    edges: Edges,
    remade: dict[int, nn.Parameter],
) -> nn.Module:
    if rule.placing == "enter":
        module.register_forward_pre_hook(_enter(edges))
        return module
    if rule.placing == "cut":
        module.register_forward_hook(_cut(edges))
        return module
    kind = _TWINS.get((rule.placing, type(module)))
    if kind is None:
        if next(module.parameters(recurse=False), None) is None:
            return module
        raise LayoutError(
            f"{name} is a {type(module).__name__}, which cannot be placed "
            f"{rule.placing!r}",
            hint=f"one of {', '.join(f'{p} {t.__name__}' for p, t in _TWINS)}",
        )
    twin = kind.of(module, edges)
    for key, parameter in module.named_parameters(recurse=False):
        shared = remade.setdefault(id(parameter), twin.get_parameter(key))
        twin._parameters[key] = shared
    if name:
        root.set_submodule(name, twin)
    return twin


def _enter(edges: Edges) -> Any:
    def hook(module: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        del module
        return (edges.enter(args[0]), *args[1:])

    return hook


def _cut(edges: Edges) -> Any:
    def hook(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        del module, args
        return edges.cut(output)

    return hook


def partial_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Return the parameters whose gradients cover this rank's tokens alone.

    Empty without sequence parallelism.
    """
    return [
        parameter
        for module in net.modules()
        if isinstance(module, Twin) and module.edges.sequence
        for name, parameter in module.named_parameters(recurse=False)
        if name in module.partial
    ]


def sum_partial_gradients(
    parameters: Sequence[nn.Parameter], group: dist.ProcessGroup
) -> None:
    """Sum the gradients of `partial_parameters` over the axis, in one all-reduce."""
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat, group=group)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
