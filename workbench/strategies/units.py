"""What is sent in one go: each transformer layer is a unit, all else is one more."""

from torch import nn

from workbench.strategies.nets import Decoder


def units(net: Decoder) -> list[list[nn.Parameter]]:
    """Return the parameters of each unit, in the order that a backward fills them.

    A parameter that two blocks share belongs to the last unit alone.
    """
    layers = [list(layer.parameters()) for layer in net.layers]
    inside = {id(parameter) for layer in layers for parameter in layer}
    rest = [p for p in net.parameters() if id(p) not in inside]
    return [*reversed(layers), rest]
