"""What a monitor says in words of differences: what usually causes them."""

import statistics

from workbench_widgets.payloads import Bar

from workbench.telemetry.picture import Picture

#: One rank waiting longer than another by this share of a step is worth a word.
WAITING_SHARE = 0.10


def hints(picture: Picture, memory: list[Bar], comm: list[Bar]) -> list[str]:
    """Say what usually causes a difference that is larger than the plan promises."""
    notes = []
    if any(bar["tone"] == "bad" for bar in memory):
        notes.append("A rank holds more than the device has: it swaps or will fail.")
    elif any(bar["tone"] == "warn" for bar in memory):
        notes.append(
            "Memory is off the plan by over 10 %: other tensors alive on the ranks,"
            " another precision, or another batch size than planned are the usual causes."
        )
    if any(bar["tone"] == "warn" for bar in comm):
        notes.append(
            "Traffic differs from the plan: another model or layout than planned,"
            " or collectives of your own in the loop, are the usual causes."
        )
    return notes + _waiting(picture)


def _waiting(picture: Picture) -> list[str]:
    """Name the rank that others wait for, where they wait long."""
    steps = picture.series.get("step_s")
    if steps is None or len(steps.y) < 5:
        return []
    step_s = statistics.median(steps.y)
    notes = []
    for row in picture.comm:
        longer_s = row.get("waited_s", 0.0) - row.get("late_waited_s", 0.0)
        if row["phase"] == "step" and longer_s > WAITING_SHARE * step_s:
            notes.append(
                f"Rank {row['waiting_rank']} waits {longer_s / step_s:.0%} of a step"
                f" for rank {row['late_rank']} in"
                f" {comm_label(row['op'], row['axis'], 'step')}: a slower device, a"
                " busy core or uneven work on that rank are the usual causes."
            )
    return notes


def comm_label(op: str, axis: str, phase: str) -> str:
    """Say what a collective is, e.g. "all-reduce over dp (evaluation)"."""
    when = "" if phase == "step" else f" ({phase})"
    return f"{op.replace('_', '-')} over {axis}{when}"
