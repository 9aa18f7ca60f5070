"""The team dashboard: the runs of a store, and one of them live."""

import threading
from pathlib import Path
from typing import Any

import ipywidgets
from workbench_widgets import RunList

from workbench.errors import WorkbenchError
from workbench.notebook.monitor import LiveMonitor
from workbench.notebook.runs import run_table
from workbench.telemetry.paths import store_path

#: Seconds between two looks at the store for runs that began or ended.
_LOOK_S = 2.0


class Dashboard:
    """Lists runs and shows the chosen one; reads only.

    Args:
        store: The run store's path; the user's own by default.
    """

    def __init__(self, store: Path | None = None) -> None:
        self._store = store or store_path()
        self._monitor: LiveMonitor | None = None
        self._closing = threading.Event()
        self._choosing = threading.RLock()
        self._list = RunList(message=f"no runs yet in {self._store}")
        self._place = ipywidgets.VBox()
        self.widget = ipywidgets.VBox([self._list, self._place])
        self._list.observe(self._choose, "selected")
        self._look()
        self._thread = threading.Thread(
            target=self._work, name="workbench-dashboard", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop looking and take all widgets away."""
        self._closing.set()
        self._thread.join()
        if self._monitor is not None:
            self._monitor.close()
        self.widget.close()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.widget._repr_mimebundle_(**kwargs)

    def _work(self) -> None:
        while not self._closing.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        """Refresh the list; choose the newest run where none is chosen."""
        try:
            rows = [dict(row) for row in run_table(self._store).rows]
        except WorkbenchError as error:
            self._list.message = str(error)
            return
        if rows != self._list.rows:
            self._list.rows = rows
        if rows and not self._list.selected:
            self._list.selected = str(rows[0]["id"])

    def _choose(self, change: dict[str, Any]) -> None:
        """Show the chosen run in place of the one before."""
        with self._choosing:
            before, self._monitor = self._monitor, None
            try:
                self._monitor = LiveMonitor(change["new"], store=self._store)
                self._place.children = [self._monitor.widget]
            except WorkbenchError as error:
                self._place.children = [ipywidgets.Label(str(error))]
            if before is not None:
                before.close()
