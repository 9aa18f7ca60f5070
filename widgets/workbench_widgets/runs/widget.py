"""A list of runs to choose from, by mouse or keyboard."""

import anywidget
import traitlets

from workbench_widgets.bundle import script, style


class RunList(anywidget.AnyWidget):
    """Shows runs and which one is chosen; all text is shown as text.

    Attributes:
        rows: The runs (`payloads.RunRow`), newest first.
        selected: The chosen run's id, "" for none; set here or by the person.
        message: What is said in place of an empty list.
    """

    _esm = script("shared/dom.js", "runs/widget.js")
    _css = style("shared/base.css", "runs/widget.css")

    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    message = traitlets.Unicode("").tag(sync=True)
