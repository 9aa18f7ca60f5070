"""Plans and explanations as tables: aligned text for terminals, HTML for notebooks."""

from collections.abc import Sequence
from html import escape

from workbench.planner.contract import CommPlan, Explanation, MemoryPlan, Plan
from workbench.units import bytes_text, count_text, seconds_text

Rows = Sequence[Sequence[str]]


def text_table(header: Sequence[str], rows: Rows) -> str:
    """Return aligned columns, the first to the left and the others to the right.

    >>> print(text_table(["axis", "bytes"], [["dp", "12"]]))
    axis  bytes
    dp       12
    """
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def html_table(header: Sequence[str], rows: Rows) -> str:
    """Return an HTML table of escaped text."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def headline(plan: Plan) -> str:
    """Return what was judged and the verdict, in two lines."""
    time = plan.step_time
    verdict = "fits" if plan.fits else "does not fit"
    return (
        f"{plan.model.name} ({count_text(plan.model.num_parameters)} parameters) on "
        f"{plan.layout.num_ranks} x {plan.hardware.groups[0].device.kind}, {plan.layout}, "
        f"global batch {plan.global_batch}: {verdict}\n"
        f"step {seconds_text(time.total_s)} (90 percent: {seconds_text(time.low_s)} to "
        f"{seconds_text(time.high_s)}), {count_text(plan.tokens_per_s)} tokens/s, "
        f"MFU {plan.mfu:.1%}, HFU {plan.hfu:.1%}"
    )


MEMORY_HEADER = ("memory per rank", "weights", "gradients", "optimizer", "activations",
                 "buffers", "workspace", "peak", "capacity")  # fmt: skip
COMM_HEADER = ("communication per rank and step", "count", "payload", "sent", "time",
               "exposed")  # fmt: skip
TIME_HEADER = ("step", "compute", "exposed comm", "bubble", "optimizer", "input")


def memory_rows(plan: Plan) -> list[list[str]]:
    """Return one row for each run of ranks with equal memory."""
    rows: list[list[str]] = []
    run: list[MemoryPlan] = []
    for entry in plan.memory:
        if run and _figures(run[0]) != _figures(entry):
            rows.append(_memory_row(run))
            run = []
        run.append(entry)
    rows.append(_memory_row(run))
    return rows


def _figures(entry: MemoryPlan) -> tuple[int, ...]:
    return (*entry.by_category.values(), entry.peak_bytes)


def _memory_row(run: list[MemoryPlan]) -> list[str]:
    first, last = run[0], run[-1]
    name = f"rank {first.rank}" if first is last else f"ranks {first.rank}-{last.rank}"
    sizes = [*first.by_category.values(), first.peak_bytes, first.capacity_bytes]
    return [name, *(bytes_text(size) for size in sizes)]


def comm_row(comm: CommPlan) -> list[str]:
    """Return one row of the communication table."""
    return [
        f"{comm.op} {comm.purpose} on {comm.axis}",
        f"{comm.count}",
        bytes_text(comm.payload_bytes),
        bytes_text(comm.sent_bytes),
        seconds_text(comm.seconds),
        seconds_text(comm.exposed_seconds),
    ]


def _sections(plan: Plan) -> list[tuple[Sequence[str], Rows]]:
    time = plan.step_time
    parts = (time.compute_s, time.exposed_comm_s, time.bubble_s, time.optimizer_s)
    times = [seconds_text(part) for part in (*parts, time.input_s)]
    sections: list[tuple[Sequence[str], Rows]] = [(MEMORY_HEADER, memory_rows(plan))]
    if plan.comm:
        sections.append((COMM_HEADER, [comm_row(comm) for comm in plan.comm]))
    return [*sections, (TIME_HEADER, [["predicted", *times]])]


def plan_text(plan: Plan) -> str:
    """Return the whole plan as text."""
    tables = [text_table(header, rows) for header, rows in _sections(plan)]
    return "\n\n".join([headline(plan), *plan.reasons, *tables])


def plan_html(plan: Plan) -> str:
    """Return the whole plan as HTML."""
    lines = [*headline(plan).split("\n"), *plan.reasons]
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines)
    tables = "".join(html_table(header, rows) for header, rows in _sections(plan))
    return f'<div class="wb-plan">{paragraphs}{tables}</div>'


def explanation_text(explanation: Explanation) -> str:
    """Return formula, numbers and source, one block of lines per step."""
    blocks = [
        f"{step.quantity} = {step.formula}\n  = {step.value}\n  source: {step.source}"
        for step in explanation.steps
    ]
    return "\n".join([explanation.name, *blocks])


def explanation_html(explanation: Explanation) -> str:
    """Return an explanation as an HTML table."""
    rows = [[s.quantity, s.formula, s.value, s.source] for s in explanation.steps]
    return html_table((explanation.name, "formula", "value", "source"), rows)
