"""The layout builder: a layout made by hand, judged after every action."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from workbench_widgets import Builder

from workbench.errors import LayoutError, WorkbenchError
from workbench.hardware import ClusterSpec
from workbench.layout import Axis, Layout
from workbench.model import ModelSpec
from workbench.notebook import builder_views
from workbench.planner import Plan, plan

if TYPE_CHECKING:
    from workbench.planner.search import SearchResult

#: Axes that are offered; the spatial ones are of other models.
AXES = (Axis.PP, Axis.DP, Axis.FSDP, Axis.CP, Axis.EP, Axis.TP)


class LayoutBuilder:
    """Shows a layout on a cluster and lets the person change it.

    `layout` and `plan` follow what is done in the picture; setting `layout` moves the
    picture.

    Args:
        model: What is trained.
        hardware: On what.
        global_batch: Samples per step; 8 for each device by default.
        layout: What to start from; all devices on fsdp by default.
        profile: The framework whose facts hold, as for `wb.plan`.

    Raises:
        LayoutError: A layout that the model or the cluster cannot hold.
        PlanError: An unknown profile.
    """

    def __init__(
        self,
        model: ModelSpec,
        hardware: ClusterSpec,
        *,
        global_batch: int | None = None,
        layout: Layout | None = None,
        profile: str = "workbench",
    ) -> None:
        self.model = model
        self.hardware = hardware
        self.profile = profile
        self.global_batch = global_batch or 8 * hardware.num_devices
        self._fills = Axis.DP if layout is not None and layout.fsdp == 1 else Axis.FSDP
        self._start = layout or Layout.fill(
            self._fills, num_ranks=hardware.num_devices, order=AXES
        )
        self._plan = self._judge(self._start)
        self._pinned: Plan | None = None
        self._undone: list[Layout] = []
        self._done: list[Layout] = []
        self._error = ""
        self._found: SearchResult | None = None
        self._searching: threading.Thread | None = None
        # Actions come from the cell's thread, suggestions from their own.
        self._lock = threading.RLock()
        self._listeners: list[Callable[[Plan], None]] = []
        self.widget = Builder(self._picture(), self._act, self.__str__)

    @property
    def plan(self) -> Plan:
        """The layout as it is, judged."""
        return self._plan

    @property
    def layout(self) -> Layout:
        """The layout as it is."""
        return self._plan.layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        with self._lock:
            self._move(layout)
            self._show()

    def observe(self, listener: Callable[[Plan], None]) -> None:
        """Call `listener` with the new plan after every change."""
        self._listeners.append(listener)

    def options(self, axis: Axis) -> list[int]:
        """Return the degrees of an axis that ranks, model and batch divide by."""
        return [
            degree
            for degree in builder_views.divisors(self.hardware.num_devices)
            if self._works(axis, degree)
        ]

    def __str__(self) -> str:
        return str(self._plan)

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.widget._repr_mimebundle_(**kwargs)

    def _judge(self, layout: Layout) -> Plan:
        return plan(
            self.model,
            self.hardware,
            layout,
            global_batch=self.global_batch,
            profile=self.profile,
        )

    def _works(self, axis: Axis, degree: int) -> bool:
        try:
            builder_views.check(
                self._with_degree(axis, degree), self.model, self.global_batch
            )
        except LayoutError:
            return False
        return True

    def _with_degree(self, axis: Axis, degree: int) -> Layout:
        """Return the layout with another degree, the filling axis taking the rest.

        Raises:
            LayoutError: The ranks do not divide, or the layout contradicts itself.
        """
        values = {
            field.name: getattr(self.layout, field.name) for field in fields(Layout)
        }
        values[axis.value] = degree
        if axis == Axis.TP and degree == 1:
            values["sp"] = False
        if axis == Axis.PP and degree == 1:
            values["chunks"] = 1
        if axis != self._fills:
            del values[self._fills.value]
            num_ranks = self.hardware.num_devices
            return Layout.fill(self._fills, num_ranks=num_ranks, **values)
        return Layout(**values)

    # --- actions: each is a method, named in the table below

    def _act(self, action: Mapping[str, Any]) -> None:
        with self._lock:
            self._error = ""
            try:
                _ACTIONS[action["k"]](self, action)
            except WorkbenchError as error:
                self._error = str(error)
            except (LookupError, ValueError, TypeError) as error:
                self._error = f"this cannot be done: {error}"
            self._show()

    def _suggest(self, action: Mapping[str, Any]) -> None:
        """Search the best layouts in a thread: the cell's stays free for actions."""
        del action
        if self._searching is None:
            self._searching = threading.Thread(
                target=self._search, name="workbench-suggest", daemon=True
            )
            self._searching.start()

    def _search(self) -> None:
        from workbench.planner.search import search

        found, error = None, ""
        try:
            found = search(
                self.model,
                self.hardware,
                global_batch=self.global_batch,
                precision=self.layout.precision,
                profile=self.profile,
            )
        except WorkbenchError as failed:
            error = str(failed)
        with self._lock:
            self._found, self._error, self._searching = found, error, None
            self._show()

    def _take(self, action: Mapping[str, Any]) -> None:
        """Load one of the suggestions."""
        if self._found is not None:
            self._move(self._found.best[int(action["index"])].layout)

    def _degree(self, action: Mapping[str, Any]) -> None:
        self._move(self._with_degree(Axis(action["axis"]), int(action["degree"])))

    def _fill(self, action: Mapping[str, Any]) -> None:
        """Let another axis take what the others leave, with what this one had."""
        before, self._fills = self._fills, Axis(action["axis"])
        if before != self._fills:
            self._move(self._with_degree(before, 1))

    def _order(self, action: Mapping[str, Any]) -> None:
        order = tuple(Axis(name) for name in action["order"])
        self._move(replace(self.layout, order=order))

    def _choose(self, action: Mapping[str, Any]) -> None:
        name, text = str(action["name"]), str(action["value"])
        self._move(builder_views.chosen(self.layout, name, text))

    def _undo(self, action: Mapping[str, Any]) -> None:
        del action
        if self._done:
            self._undone.append(self.layout)
            self._set(self._judge(self._done.pop()))

    def _redo(self, action: Mapping[str, Any]) -> None:
        del action
        if self._undone:
            self._done.append(self.layout)
            self._set(self._judge(self._undone.pop()))

    def _reset(self, action: Mapping[str, Any]) -> None:
        del action
        self._move(self._start)

    def _pin(self, action: Mapping[str, Any]) -> None:
        del action
        self._pinned = self._plan

    def _move(self, layout: Layout) -> None:
        if layout == self.layout:
            return
        judged = self._judge(layout)
        self._done.append(self.layout)
        self._undone.clear()
        self._set(judged)

    def _set(self, judged: Plan) -> None:
        """Take a plan; let an axis of copies that has ranks to give be the one to fill."""
        self._plan = judged
        if judged.layout.degree(self._fills) == 1:
            copies = (Axis.FSDP, Axis.DP)
            larger = [axis for axis in copies if judged.layout.degree(axis) > 1]
            self._fills = larger[0] if larger else self._fills

    def _show(self) -> None:
        self.widget.picture = self._picture()
        for listener in self._listeners:
            listener(self._plan)

    def _picture(self) -> Any:
        return builder_views.picture(
            self._plan,
            pinned=self._pinned,
            options={axis: self.options(axis) for axis in AXES},
            fills=self._fills,
            error=self._error,
            found=self._found,
            searching=self._searching is not None,
            can_undo=bool(self._done),
            can_redo=bool(self._undone),
        )


_ACTIONS: Mapping[str, Callable[[LayoutBuilder, Mapping[str, Any]], None]] = {
    "degree": LayoutBuilder._degree,
    "fill": LayoutBuilder._fill,
    "order": LayoutBuilder._order,
    "choose": LayoutBuilder._choose,
    "undo": LayoutBuilder._undo,
    "redo": LayoutBuilder._redo,
    "reset": LayoutBuilder._reset,
    "pin": LayoutBuilder._pin,
    "suggest": LayoutBuilder._suggest,
    "take": LayoutBuilder._take,
}
