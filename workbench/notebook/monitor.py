"""The live monitor: a widget fed by one background thread."""

import threading
import time
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable
from weakref import WeakValueDictionary

from workbench_widgets import Monitor
from workbench_widgets.payloads import MonitorUpdate

from workbench.notebook import views
from workbench.notebook.follow import Follower, HasFeed

#: Seconds between two updates of words and bars; points are sent as they come.
_PANELS_S = 0.5


@runtime_checkable
class CanStop(Protocol):
    """A session: its owner may stop the cell that its ranks run."""

    def interrupt(self) -> object:
        """Stop the running cell."""


def current_cell() -> str:
    """Return the id of the notebook's cell that runs now; "" outside a notebook."""
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return ""
    metadata = kernel.get_parent().get("metadata", {})
    return str(metadata.get("cellId", ""))


class LiveMonitor:
    """Shows a run while it goes on, and as it was when it is over.

    Running a cell again closes the monitor that the same cell showed before.

    Args:
        target: A session, a run's id, or None for the newest run.
        store: The run store's path; the user's own by default.

    Raises:
        StoreError: If there is no such run.
    """

    _by_cell: ClassVar[WeakValueDictionary[str, "LiveMonitor"]] = WeakValueDictionary()

    def __init__(
        self, target: HasFeed | str | None = None, *, store: Path | None = None
    ) -> None:
        self._follower = Follower(target, store=store)
        self._drawn_s = 0.0
        self._lock = threading.RLock()
        #: The widget alone, to be put beside others.
        stop = target.interrupt if isinstance(target, CanStop) else None
        self.widget = Monitor(self._snapshot, self._text, stop)
        self._follower.start(self._changed)
        self._replace_in_cell(current_cell())

    @property
    def run(self) -> str:
        """The id of the run that is shown."""
        return self._follower.shown().run.id

    def close(self) -> None:
        """Stop following and take the widget away; harmless when closed already."""
        self._follower.close()
        self.widget.close()

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return self._text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.widget._repr_mimebundle_(**kwargs)

    def _replace_in_cell(self, cell: str) -> None:
        if not cell:
            return
        before = self._by_cell.get(cell)
        self._by_cell[cell] = self
        if before is not None:
            before.close()

    def _text(self) -> str:
        with self._follower.lock:
            return views.text(self._follower.shown())

    def _snapshot(self) -> MonitorUpdate:
        with self._follower.lock:
            return views.snapshot(self._follower.shown())

    def _changed(self, changed: dict[str, Any] | None) -> None:
        """Pass a change on; everything, as long as no view has asked or it is new."""
        if changed is None or not self.widget.greeted:
            self._push_everything(forced=changed is None)
            return
        now_s = time.monotonic()
        with self._follower.lock:
            shown = self._follower.shown()
            due = now_s - self._drawn_s >= _PANELS_S
            self._drawn_s = now_s if due else self._drawn_s
            update = views.changes(
                changed,
                num_ranks=shown.run.num_ranks,
                panels=views.panels(shown) if due else None,
            )
        self.widget.push(update)

    def _push_everything(self, *, forced: bool) -> None:
        """Send a snapshot; at most each second while a busy kernel hears no view."""
        now_s = time.monotonic()
        if forced or now_s - self._drawn_s >= 1.0:
            self._drawn_s = now_s
            self.widget.push_snapshot()
