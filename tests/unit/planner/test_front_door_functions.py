"""`wb.model` and `wb.hardware` stay functions, whatever is imported around them."""

import workbench as wb


def test_functions_survive_the_rooms_of_the_same_name():
    import workbench.hardware.host
    import workbench.model.gpt  # noqa: F401

    made = wb.plan(
        wb.model("gpt"), wb.hardware("h100"), wb.Layout(dp=2), global_batch=2
    )

    assert made.layout == wb.Layout(dp=2)
    assert callable(wb.model)
    assert callable(wb.hardware)
