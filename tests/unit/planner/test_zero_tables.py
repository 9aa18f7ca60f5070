"""The ZeRO paper's Table 1 (arXiv:1910.02054), exactly: 16 bytes a parameter, cut."""

import pytest

from workbench.layout import Layout
from workbench.model import Block, ModelSpec, Parameter
from workbench.planner.case import case_of
from workbench.planner.numbers import model_numbers
from workbench.planner.profiles import profile
from workbench.planner.states import states

GB = 1e9
#: (parameters, dp, stage): GB a device as Table 1 prints them.
TABLE = {
    (7.5e9, 1, 1): 120,
    (7.5e9, 64, 1): 31.4,
    (7.5e9, 64, 2): 16.6,
    (7.5e9, 64, 3): 1.88,
    (128e9, 256, 1): 518,
    (128e9, 256, 2): 263,
    (128e9, 1024, 3): 2,
    (1e12, 64, 1): 4187,
    (1e12, 16, 2): 2875,
    (1e12, 1024, 3): 15.6,
}


@pytest.mark.parametrize(("elements", "dp", "stage"), TABLE)
def test_a_device_holds_what_the_table_says(elements, dp, stage):
    weight = Parameter(name="weight", shape=(int(elements),))
    block = Block(
        name="all",
        kind="matrix",
        parameters=(weight,),
        forward_flops=0,
        saved=(),
        boundary_elements=1,
    )
    numbers = model_numbers(
        ModelSpec(name="paper", family="paper", blocks=(block,)), profile("deepspeed")
    )
    layout = Layout(dp=dp, zero=stage, precision="fp16")

    held = states(numbers, case_of(layout, global_batch=dp))

    total = held.weights + held.gradients + held.optimizer
    # The table rounds to three digits.
    assert total / GB == pytest.approx(TABLE[elements, dp, stage], rel=0.005)
