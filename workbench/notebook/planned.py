"""A run's plan as a monitor needs it: per rank and per kind of collective."""

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.errors import WorkbenchError
from workbench.planner.contract import MemoryPlan, Plan
from workbench.telemetry.traffic import Key


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What was predicted for a run.

    Args:
        memory: By rank.
        sent_bytes: Per rank and step (evaluation, ...), by (op, axis, phase).
        step_s, low_s, high_s: Seconds of a step and its 90 percent interval.
        tokens_per_s: Of the whole run.
    """

    memory: Mapping[int, MemoryPlan]
    sent_bytes: Mapping[Key, int]
    step_s: float
    low_s: float
    high_s: float
    tokens_per_s: float

    @property
    def peak_bytes(self) -> int:
        """The highest peak of any rank."""
        return max(memory.peak_bytes for memory in self.memory.values())


def plan_of(plan_json: str) -> Plan | None:
    """Read a stored plan; None without one, or where another version wrote it."""
    if not plan_json:
        return None
    try:
        return Plan.from_json(plan_json)
    except WorkbenchError:
        return None


def planned_of(plan_json: str) -> Planned | None:
    """Read what a stored plan says of a run; None as `plan_of`."""
    plan = plan_of(plan_json)
    if plan is None:
        return None
    return Planned(
        memory={memory.rank: memory for memory in plan.memory},
        sent_bytes=_sent(plan),
        step_s=plan.step_time.total_s,
        low_s=plan.step_time.low_s,
        high_s=plan.step_time.high_s,
        tokens_per_s=plan.tokens_per_s,
    )


def _sent(plan: Plan) -> dict[Key, int]:
    """Add up what is sent for several purposes: the counter cannot tell them apart."""
    sent: dict[Key, int] = {}
    for comm in plan.comm:
        key = (comm.op, comm.axis, comm.phase)
        sent[key] = sent.get(key, 0) + comm.sent_bytes
    return sent
