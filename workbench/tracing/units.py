"""Which sub-modules become blocks: the parts of the longest repeated chains."""

from torch import nn


def find_units(module: nn.Module) -> frozenset[str]:
    """Return the names of the modules that become blocks.

    A module is opened while something repeated (a ModuleList or Sequential of two or
    more) lies inside it and it is not itself one of a repeated chain of equals; what is
    not opened is a unit. A flat module becomes its direct children, a module without
    children is one unit.
    """
    units = frozenset(_open(module, ""))
    return units or frozenset({""})


def signature(module: nn.Module) -> tuple[object, ...]:
    """Return what two modules share that are repeats of each other."""
    shapes = tuple(
        (name, tuple(p.shape), p.dtype) for name, p in module.named_parameters()
    )
    return (type(module), shapes)


def _open(module: nn.Module, path: str) -> list[str]:
    names = []
    for name, child in module.named_children():
        full = f"{path}.{name}" if path else name
        if _holds_chain(child) and not _is_repeat(module, child):
            names += _open(child, full)
        else:
            names.append(full)
    return names


def _holds_chain(module: nn.Module) -> bool:
    return any(
        isinstance(inner, nn.ModuleList | nn.Sequential) and len(inner) > 1
        for inner in module.modules()
    )


def _is_repeat(parent: nn.Module, child: nn.Module) -> bool:
    if not isinstance(parent, nn.ModuleList | nn.Sequential):
        return False
    equal = [c for c in parent if signature(c) == signature(child)]
    return len(equal) > 1
