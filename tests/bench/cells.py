"""How long a trivial cell takes on two ranks, beside a plain kernel's cell.

Pairs alternate, so that other work on the machine meets both alike. Medians in
milliseconds. `first_line_ms` is from the rank's print to its text in this process; ranks
and notebook share the host's monotonic clock.
"""

import json
import statistics
import time

from jupyter_client.manager import start_new_kernel

from workbench.session.connect import connect

STANDALONE = True
PAIRS = 100
FIRST_LINES = 30


class Arrival:
    """A view that keeps when text came."""

    def __init__(self):
        self.at_s = []

    def text(self, message):
        self.at_s.append((time.monotonic(), message.text))

    def display(self, message):
        pass

    def note(self, text):
        pass

    def refresh(self, *, final=False):
        return None


def one_cell(session):
    began_s = time.perf_counter()
    session.run_cell("pass")
    return time.perf_counter() - began_s


def one_plain_cell(client):
    began_s = time.perf_counter()
    client.execute_interactive("pass", timeout=10, store_history=False)
    return time.perf_counter() - began_s


def first_line(session):
    view = Arrival()
    session.run_cell("import time; print(time.monotonic()); time.sleep(0.3)", view=view)
    return min(at_s - float(text) for at_s, text in view.at_s)


def main():
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        with connect(num_ranks=2, oversubscribe=True) as session:
            pairs = [(one_cell(session), one_plain_cell(client)) for _ in range(PAIRS)]
            lines = [first_line(session) for _ in range(FIRST_LINES)]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    ours, plain = (
        statistics.median(column) * 1e3 for column in zip(*pairs[5:], strict=True)
    )
    return {
        "cell_ms": round(ours, 2),
        "plain_kernel_cell_ms": round(plain, 2),
        "cell_min_ms": round(min(pair[0] for pair in pairs) * 1e3, 2),
        "first_line_ms": round(statistics.median(lines) * 1e3, 2),
        "first_line_min_ms": round(min(lines) * 1e3, 2),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
