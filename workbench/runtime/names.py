"""The names that Workbench puts into every rank's namespace."""

from typing import TYPE_CHECKING, Any

from workbench.layout import Layout
from workbench.runtime.membership import Membership

if TYPE_CHECKING:
    from workbench.planner.contract import Plan


class Names:
    """Keeps `rank, world_size, device, mesh, ranks, layout, plan` current."""

    def __init__(
        self, namespace: dict[str, Any], members: Membership, device: str
    ) -> None:
        self.namespace = namespace
        self._members = members
        self._device = device
        self._layout: Layout | None = None
        self.run = ""
        self._plan: Plan | None = None

    def regroup(self) -> None:
        """Point the names at the group that has just been formed."""
        group = self._members.group
        assert group is not None
        layout = self._layout
        if layout is None or layout.num_ranks != group.world_size:
            layout = Layout(dp=group.world_size)
        ranks = self._members.ranks(layout, self.run)
        self.namespace.update(
            rank=group.rank,
            world_size=group.world_size,
            device=ranks.device,
            mesh=ranks.mesh,
            ranks=ranks,
            layout=layout,
            plan=self._plan,
        )

    def follow(self, run: str, plan_json: str) -> None:
        """Know the session's current run and plan; "" where there is none."""
        self.run, self._plan = run, None
        if plan_json:
            from workbench.planner.contract import Plan

            self._plan = Plan.from_json(plan_json)
            self._layout = self._plan.layout
