"""The live monitor: words in JSON, points in binary buffers, one message per update."""

import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import traitlets

from workbench_widgets.bundle import script, style
from workbench_widgets.payloads import MonitorUpdate

_SCRIPTS = (
    "shared/dom.js",
    "shared/format.js",
    "monitor/state.js",
    "monitor/chart.js",
    "monitor/heat.js",
    "monitor/panels.js",
    "monitor/save.js",
    "monitor/widget.js",
)


MODULE = script(*_SCRIPTS, uplot=True)
STYLE = style(
    "shared/base.css",
    "shared/parts.css",
    "shared/chart.css",
    "monitor/widget.css",
    uplot=True,
)


class Monitor(anywidget.AnyWidget):
    """Draws a run; the owner pushes updates from any one thread at a time.

    A view says hello and is sent a snapshot. Updates carry a rising number, so that a
    view drops those which the snapshot already holds.

    Args:
        snapshot: Gives everything that is known now; called on any thread.
        describe: Gives the run in words, for front ends without widgets.
        stop: Stops what the ranks do now; None where a viewer may not.
    """

    _esm = MODULE
    _css = STYLE

    can_stop = traitlets.Bool(default_value=False).tag(sync=True)
    start = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)

    def __init__(
        self,
        snapshot: Callable[[], MonitorUpdate],
        describe: Callable[[], str],
        stop: Callable[[], object] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._describe = describe
        self._stop = stop
        self._sending = threading.RLock()
        self._seq = 0
        #: Whether a view has asked for a snapshot yet.
        self.greeted = False
        super().__init__(start=snapshot().panels, can_stop=stop is not None)
        self.on_msg(self._on_message)

    def push(self, update: MonitorUpdate) -> None:
        """Send what is new to all views."""
        with self._sending:
            self._seq += 1
            self._send_update("append", update)

    def push_snapshot(self) -> None:
        """Send everything to all views."""
        with self._sending:
            self._send_update("snapshot", self._snapshot())

    def _on_message(self, widget: Any, content: Any, buffers: Any) -> None:
        del widget, buffers
        asked = content.get("k") if isinstance(content, dict) else None
        if asked == "hello":
            self.greeted = True
            self.push_snapshot()
        elif asked == "stop" and self._stop is not None:
            # Not here: it waits for ranks, and this is the thread that runs cells.
            threading.Thread(target=self._stop, name="workbench-stop").start()

    def _send_update(self, kind: str, update: MonitorUpdate) -> None:
        message, buffers = pack(kind, self._seq, update)
        self.send(message, buffers)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Show the widget, and the run in words where widgets are not shown."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        shown = {**(data or {}), "text/plain": self._describe()}
        return (shown, *rest) if rest else shown


def pack(
    kind: str, seq: int, update: MonitorUpdate
) -> tuple[dict[str, Any], list[bytes]]:
    """Return an update as (JSON, buffers), as `monitor/state.js` reads it."""
    buffers: list[bytes] = []
    for x, y in update.series.values():
        buffers += [_doubles(x), _doubles(y)]
    message = {
        "k": kind,
        "seq": seq,
        "series": list(update.series),
        "memory": list(update.memory_names) if update.memory_x else None,
        "panels": update.panels,
    }
    if update.memory_x:
        values = array("f", (value for row in update.memory_rows for value in row))
        buffers += [_doubles(update.memory_x), values.tobytes()]
    return message, buffers


def _doubles(values: Sequence[float]) -> bytes:
    return array("d", values).tobytes()
