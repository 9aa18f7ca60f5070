"""One run beside another, and what it was made of; all of it text and one chart."""

import anywidget
import traitlets

from workbench_widgets.bundle import script, style


class Versus(anywidget.AnyWidget):
    """Shows texts of a run and a comparison with a second one.

    Attributes:
        sections: [title, text] of what can be unfolded.
        others: [id, name] of the runs to compare with.
        other: The chosen one's id; "" for none.
        rows: [figure, first, second] of the comparison.
        curves: [label, x, y] of the lines that are drawn.
    """

    _esm = script(
        "shared/dom.js",
        "monitor/state.js",
        "monitor/chart.js",
        "versus/widget.js",
        uplot=True,
    )
    _css = style(
        "shared/base.css",
        "shared/parts.css",
        "shared/chart.css",
        "versus/widget.css",
        uplot=True,
    )

    sections = traitlets.List(traitlets.List()).tag(sync=True)
    others = traitlets.List(traitlets.List()).tag(sync=True)
    other = traitlets.Unicode("").tag(sync=True)
    rows = traitlets.List(traitlets.List()).tag(sync=True)
    curves = traitlets.List(traitlets.List()).tag(sync=True)
