"""The layout builder: draws a picture, tells its owner what the person asks for."""

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from workbench_widgets.bundle import script, style
from workbench_widgets.payloads import BuilderPicture


class Builder(anywidget.AnyWidget):
    """Shows a layout on a cluster; each action is answered with a new picture.

    Args:
        picture: What to show first.
        act: Called with each action: a dict with "k" and what belongs to it.
        describe: Gives the layout in words, for front ends without widgets.
    """

    _esm = script(
        "shared/dom.js",
        "shared/format.js",
        "builder/grid.js",
        "builder/cluster.js",
        "builder/controls.js",
        "builder/suggest.js",
        "builder/widget.js",
    )
    _css = style("shared/base.css", "shared/parts.css", "builder/widget.css")

    picture = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        picture: BuilderPicture,
        act: Callable[[Mapping[str, Any]], None],
        describe: Callable[[], str],
    ) -> None:
        self._act = act
        self._describe = describe
        super().__init__(picture=dict(picture))
        self.on_msg(self._on_message)

    def _on_message(self, widget: Any, content: Any, buffers: Any) -> None:
        del widget, buffers
        if isinstance(content, dict):
            self._act(content)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Show the widget, and the layout in words where widgets are not shown."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        shown = {**(data or {}), "text/plain": self._describe()}
        return (shown, *rest) if rest else shown
