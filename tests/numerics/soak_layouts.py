"""The compositions of three and four axes on eight and sixteen ranks; prints JSON.

python -m tests.numerics.soak_layouts
"""

import json
import time

from tests.numerics.layouts_table import (
    LARGE,
    planned,
    planned_traffic,
    run_layout,
)
from workbench.layout import Layout
from workbench.training import warm

NUM_STEPS = 30


def main() -> None:
    warm()
    reference = run_layout(Layout(), NUM_STEPS)[0]
    for name, layout in LARGE.items():
        began_s = time.monotonic()
        outcomes = run_layout(layout, NUM_STEPS, timeout_s=900)
        made = planned(layout)
        row = {
            "layout": name,
            "num_ranks": layout.num_ranks,
            "largest_loss_difference": max(
                abs(a - b)
                for outcome in outcomes
                for a, b in zip(outcome.losses, reference.losses, strict=True)
            ),
            "traffic_is_planned": all(
                outcome.traffic == planned_traffic(made, rank)
                for rank, outcome in enumerate(outcomes)
            ),
            "seconds": round(time.monotonic() - began_s, 1),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
