"""Predicted beside measured: what agrees, what does not, what is missing."""

from workbench.hardware import hardware
from workbench.layout import Layout
from workbench.model import model
from workbench.planner import plan
from workbench.planner.compare import compare
from workbench.telemetry.derive import Measured, MeasuredComm, MeasuredMemory

PLAN = plan(model("gpt"), hardware("h100"), Layout(dp=2), global_batch=4)


def as_planned(**more) -> Measured:
    """A run that did as planned, with two bytes more of weights on rank 1."""
    memory = tuple(
        MeasuredMemory(
            rank=m.rank,
            by_category={
                **m.by_category,
                "weights": m.by_category["weights"] + 2 * m.rank,
            },
            peak_bytes=None,
        )
        for m in PLAN.memory
    )
    comm = tuple(
        MeasuredComm(
            rank=rank,
            op=c.op,
            axis=c.axis,
            phase="step",
            times=3,
            count=c.count,
            payload_bytes=c.payload_bytes,
            sent_bytes=c.sent_bytes,
            seconds=0.1,
        )
        for c in PLAN.comm
        for rank in (0, 1)
    )
    values = {"memory": memory, "comm": comm, "median_step_s": 0.5, **more}
    return Measured(run="r", num_steps=3, losses=None, dropped=0, **values)


def test_equal_figures_differ_by_nothing():
    line = compare(PLAN, as_planned()).line("payload.all_reduce.dp", rank=1)

    assert line.ranks == (0, 1)
    assert line.difference == 0
    assert line.percent == 0


def test_a_difference_stands_in_bytes_and_percent_of_the_measurement():
    line = compare(PLAN, as_planned()).line("memory.weights", rank=1)

    assert line.difference == 2
    assert line.percent == 100 * 2 / line.measured


def test_what_was_not_measured_says_so():
    shown = compare(PLAN, as_planned())

    assert shown.line("memory.peak").measured is None
    assert "not measured" in str(shown)


def test_what_was_not_planned_says_so():
    extra = MeasuredComm(
        rank=0, op="all_reduce", axis="world", phase="evaluation", times=1, count=2,
        payload_bytes=48, sent_bytes=48, seconds=0.1,
    )  # fmt: skip
    shown = compare(PLAN, as_planned(comm=(extra,)))

    assert shown.line("payload.all_reduce.world.evaluation").predicted is None
    assert "not planned" in shown._repr_html_()


def test_the_median_step_stands_beside_the_prediction():
    line = compare(PLAN, as_planned()).line("step_time.total")

    assert (line.predicted, line.measured) == (PLAN.step_time.total_s, 0.5)
