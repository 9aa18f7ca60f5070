"""The team dashboard: the runs of a store, and one of them live."""

import json
import threading
from pathlib import Path
from typing import Any

import ipywidgets
from workbench_widgets import RunList, Versus

from workbench.errors import WorkbenchError
from workbench.notebook.monitor import LiveMonitor
from workbench.notebook.planned import plan_of
from workbench.notebook.runs import run_table
from workbench.notebook.two_runs import two_runs
from workbench.telemetry.paths import store_path
from workbench.telemetry.store import Run, RunStore

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
        self._versus = Versus()
        self.widget = ipywidgets.VBox([self._list, self._place, self._versus])
        self._list.observe(self._choose, "selected")
        self._versus.observe(self._compare, "other")
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
            self._offer()
        if rows and not self._list.selected:
            self._list.selected = str(rows[0]["id"])

    def _choose(self, change: dict[str, Any]) -> None:
        """Show the chosen run in place of the one before."""
        with self._choosing:
            before, self._monitor = self._monitor, None
            try:
                self._monitor = LiveMonitor(change["new"], store=self._store)
                self._place.children = [self._monitor.widget]
                self._tell(change["new"])
            except WorkbenchError as error:
                self._place.children = [ipywidgets.Label(str(error))]
            if before is not None:
                before.close()

    def _tell(self, chosen: str) -> None:
        """Say of the chosen run what it was made of, and offer the others."""
        with RunStore(self._store, read_only=True) as store:
            run = store.run(chosen)
        self._versus.other = ""
        self._versus.sections = sections(run)
        self._offer()

    def _offer(self) -> None:
        others = [
            [row["id"], f"{row['name']}, {row['started']}"]
            for row in self._list.rows
            if row["id"] != self._list.selected
        ]
        if others != self._versus.others:
            self._versus.others = others

    def _compare(self, change: dict[str, Any]) -> None:
        if not change["new"]:
            self._versus.rows = []
            return
        both = two_runs(self._list.selected, change["new"], store=self._store)
        self._versus.curves = [
            [run.name, list(x), list(y)]
            for run, (x, y) in zip((both.first, both.second), both.curves, strict=True)
        ]
        self._versus.rows = [list(row) for row in both.rows]


def sections(run: Run) -> list[list[Any]]:
    """Return [title, text] of a run's layout, plan and surroundings."""
    told: list[list[Any]] = [["Layout", run.layout_toml or "started without a layout"]]
    if (plan := plan_of(run.plan_json)) is not None:
        told.append(["Plan", str(plan)])
    about = json.loads(run.about)
    lines = [f"{name}: {value}" for name, value in about.items()]
    told.append(["Made with", "\n".join(lines) or "not recorded"])
    return told
