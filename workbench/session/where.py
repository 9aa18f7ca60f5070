"""Ranks by their place in the layout: "tp=0,pp=last"."""

from workbench.errors import SessionError
from workbench.layout import Axis, Layout


def ranks_where(text: str, layout: Layout) -> tuple[int, ...]:
    """Return the ranks whose coordinates fit a text.

    Args:
        text: Conditions joined by commas: an axis and a position, a span of positions
            ("dp=1-3"), "first" or "last".
        layout: Gives the coordinates.

    Raises:
        SessionError: An axis or position that the layout does not have.

    >>> ranks_where("tp=last", Layout(dp=2, tp=2))
    (1, 3)
    """
    wanted = dict(_condition(part, layout) for part in text.split(","))
    return tuple(
        rank
        for rank in range(layout.num_ranks)
        if all(layout.coordinates(rank)[axis] in at for axis, at in wanted.items())
    )


def _condition(part: str, layout: Layout) -> tuple[Axis, range]:
    name, equals, value = part.strip().partition("=")
    try:
        axis = Axis(name.strip())
    except ValueError:
        axis = None
    if axis is None or not equals:
        raise SessionError(
            f"{part!r} names no place in the layout {layout}",
            hint=f'write e.g. "{layout.axes()[0] if layout.axes() else "dp"}=0"; axes '
            f"are {', '.join(Axis)}",
        )
    return axis, _positions(axis, value.strip(), layout.degree(axis))


def _positions(axis: Axis, value: str, degree: int) -> range:
    named = {"first": range(1), "last": range(degree - 1, degree)}
    if value in named:
        return named[value]
    first, dash, last = value.partition("-")
    try:
        chosen = range(int(first), int(last if dash else first) + 1)
    except ValueError:
        chosen = range(0)
    if not chosen or chosen[0] < 0 or chosen[-1] >= degree:
        raise SessionError(
            f"{axis}={value}: the degree of {axis} is {degree}",
            hint=f'choose 0 to {degree - 1}, a span such as "0-{degree - 1}", "first" '
            'or "last"',
        )
    return chosen
