"""The answer of the planner: a layout judged on a model and hardware."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.errors import PlanError
from workbench.hardware import ClusterSpec
from workbench.layout import Layout
from workbench.model import ModelSpec

Category = Literal[
    "weights", "gradients", "optimizer", "activations", "buffers", "workspace"
]
CollectiveOp = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send",
    "barrier",
]
Phase = Literal["step", "evaluation", "checkpoint", "setup"]


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Predicted bytes of one rank, by category.

    `peak_bytes` is the highest point of a step and may be below the sum, since the
    categories do not all peak at the same moment. `reserved_bytes` adds what the
    allocator loses between its blocks, the device's context and communication buffers:
    it decides whether the rank fits.
    """

    rank: int
    by_category: Mapping[Category, int]
    peak_bytes: int
    reserved_bytes: int
    capacity_bytes: int


@dataclass(frozen=True, kw_only=True)
class CommPlan:
    """Predicted traffic of one kind of collective on one axis, per rank and step.

    Args:
        op: The logical operation that the code asks for.
        axis: The axis whose group carries it ("dp", "fsdp", ..., "world").
        purpose: Why it is sent: "gradients", "weights", "loss", "norm".
        count: Operations per step.
        payload_bytes: Logical payload per step: the whole tensor that is reduced,
            gathered (its gathered size), scattered (its size before), or sent.
        sent_bytes: What a rank puts on the wire per step with this backend's
            algorithm (see `backend`).
        seconds: Time of all of them, were nothing hidden.
        exposed_seconds: What of it the step waits for.
        phase: The part of a run that this belongs to.
    """

    op: CollectiveOp
    axis: str
    purpose: str
    count: int
    payload_bytes: int
    sent_bytes: int
    seconds: float
    exposed_seconds: float
    phase: Phase = "step"


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Predicted seconds of one step and where they go; the interval is 90 percent."""

    compute_s: float
    exposed_comm_s: float
    bubble_s: float
    optimizer_s: float
    input_s: float
    low_s: float
    high_s: float

    @property
    def total_s(self) -> float:
        """Seconds of the whole step."""
        return (
            self.compute_s
            + self.exposed_comm_s
            + self.bubble_s
            + self.optimizer_s
            + self.input_s
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """One line of an explanation: a quantity, its formula with numbers, its source."""

    quantity: str
    formula: str
    value: str
    source: str


class TextTable:
    """What shows itself as its text where a notebook has no HTML.

    Its dataclasses leave `repr` out: IPython would prefer theirs.
    """

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001
        """Print as `str` does (IPython's protocol)."""
        printer.text("..." if cycle else str(self))


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(TextTable):
    """A layout judged on a model and hardware.

    Args:
        model, hardware, layout: What was judged.
        global_batch: Samples per step over all ranks.
        profile: The framework whose facts hold.
        memory: One entry per rank.
        comm: One entry per kind of collective and axis.
        step_time: Split and interval.
        mfu: Model FLOPs over peak FLOPs in a step, full (not causal) attention.
        hfu: The same with recomputed FLOPs counted.
        fits: Whether every rank holds its part.
        reasons: What does not fit or cannot run, with the numbers; empty when all is
            well.
        explanations: Every figure's derivation, by name ("memory.weights", ...).
    """

    model: ModelSpec
    hardware: ClusterSpec
    layout: Layout
    global_batch: int
    profile: str
    memory: tuple[MemoryPlan, ...]
    comm: tuple[CommPlan, ...]
    step_time: StepTime
    mfu: float
    hfu: float
    fits: bool
    reasons: tuple[str, ...]
    explanations: Mapping[str, tuple[Step, ...]]

    def explain(self, name: str) -> "Explanation":
        """Return formula, numbers and source of one figure, e.g. "memory.weights".

        Raises:
            PlanError: No such figure, with the nearest one.
        """
        if name in self.explanations:
            return Explanation(name=name, steps=tuple(self.explanations[name]))
        close = difflib.get_close_matches(name, self.explanations, n=1)
        known = ", ".join(self.explanations)
        raise PlanError(
            f"a plan has no figure {name!r}",
            hint=f"did you mean {close[0]!r}?" if close else f"it has {known}",
        )

    @property
    def peak(self) -> MemoryPlan:
        """The rank with the highest peak."""
        return max(self.memory, key=lambda m: m.peak_bytes)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the global batch over the predicted step."""
        tokens = self.global_batch * self.model.tokens_per_sample
        return tokens / self.step_time.total_s

    def to_json(self) -> str:
        """Serialise; `from_json` gives an equal plan back."""
        from workbench.planner.codec import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read what `to_json` wrote.

        Raises:
            PlanError: The text is not a plan.
        """
        from workbench.planner.codec import from_json

        return from_json(cls, text)

    def __str__(self) -> str:
        from workbench.planner.tables import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from workbench.planner.tables import plan_html

        return plan_html(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(TextTable):
    """How one figure of a plan came about; shows itself as a table."""

    name: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        from workbench.planner.tables import explanation_text

        return explanation_text(self)

    def _repr_html_(self) -> str:
        from workbench.planner.tables import explanation_html

        return explanation_html(self)
