import pytest

from workbench.hardware.presets import hardware
from workbench.layout import Axis, Layout
from workbench.model.presets import model
from workbench.notebook.builder import LayoutBuilder
from workbench.planner import plan as judge


@pytest.fixture
def builder():
    return LayoutBuilder(
        model("gpt", hidden=64, num_layers=4, num_heads=4, vocab_size=64),
        hardware("a100", num_nodes=2),
    )


def act(builder, kind, **values):
    builder._act({"k": kind, **values})
    return builder.widget.picture


def test_it_starts_with_all_devices_on_fsdp(builder):
    assert builder.layout.degree(Axis.FSDP) == builder.layout.num_ranks == 16


def test_a_degree_is_set_and_the_rest_is_filled(builder):
    act(builder, "degree", axis="tp", degree=4)

    assert (builder.layout.tp, builder.layout.fsdp) == (4, 4)


def test_only_degrees_that_divide_are_offered(builder):
    options = {axis["name"]: axis["options"] for axis in builder.widget.picture["axes"]}

    assert options["tp"] == [1, 2, 4]  # 4 heads on 16 devices
    assert options["pp"] == [1, 2, 4]  # 4 layers
    assert "ep" not in options  # the model has no experts


def test_every_offered_degree_can_be_planned(builder):
    for axis in (Axis.PP, Axis.DP, Axis.TP):
        for degree in builder.options(axis):
            assert act(builder, "degree", axis=axis.value, degree=degree)["error"] == ""
            act(builder, "reset")


def test_figures_equal_the_plan_to_the_byte(builder):
    picture = act(builder, "degree", axis="tp", degree=2)

    plan = judge(
        builder.model,
        builder.hardware,
        builder.layout,
        global_batch=builder.global_batch,
    )
    assert builder.plan == plan
    peaks = [picture["kinds"][kind]["peak"] for kind in picture["kindOf"]]
    assert peaks == [memory.peak_bytes for memory in plan.memory]


def test_another_axis_takes_the_rest(builder):
    act(builder, "fill", axis="dp")

    assert (builder.layout.dp, builder.layout.fsdp) == (16, 1)


def test_undo_and_redo_walk_through_what_was_done(builder):
    start = builder.layout
    act(builder, "degree", axis="tp", degree=2)
    changed = builder.layout

    assert act(builder, "undo")["canRedo"]
    assert builder.layout == start
    act(builder, "redo")
    assert builder.layout == changed


def test_the_order_of_the_axes_can_be_changed(builder):
    act(builder, "degree", axis="tp", degree=2)

    act(builder, "order", order=["tp", "pp", "dp", "fsdp", "cp", "ep"])

    assert builder.layout.order[0] == Axis.TP
    assert builder.layout.coordinates(15)[Axis.TP] == 1


def test_settings_beside_the_degrees_are_chosen(builder):
    act(builder, "choose", name="precision", value="bf16")
    act(builder, "choose", name="num_microbatches", value="4")

    assert builder.layout.precision == "bf16"
    assert builder.layout.num_microbatches == 4


@pytest.mark.parametrize(
    "action",
    [
        {"k": "degree", "axis": "tp", "degree": 3},
        {"k": "degree", "axis": "nope", "degree": 2},
        {"k": "choose", "name": "precision", "value": "<b>"},
        {"k": "nonsense"},
        {"k": "order", "order": []},
    ],
)
def test_what_cannot_be_is_said_and_nothing_changes(builder, action):
    before = builder.layout

    builder._act(action)

    assert builder.layout == before
    assert builder.widget.picture["error"]


def test_setting_the_layout_in_code_moves_the_picture(builder):
    builder.layout = Layout(dp=4, tp=2)

    assert builder.widget.picture["numRanks"] == 8


def test_the_pinned_plan_is_compared_with(builder):
    act(builder, "pin")

    picture = act(builder, "degree", axis="tp", degree=4)

    assert picture["pinned"].startswith("Against the pinned fsdp 16: ")


def test_the_code_and_the_toml_make_the_layout_again(builder):
    import workbench as wb

    act(builder, "degree", axis="tp", degree=4)
    act(builder, "choose", name="precision", value="bf16")
    picture = act(builder, "order", order=["tp", "fsdp", "pp", "dp"])

    assert eval(picture["code"], {"wb": wb}) == builder.layout
    assert Layout.from_toml(picture["toml"]) == builder.layout


def test_listeners_hear_of_every_change(builder):
    heard = []
    builder.observe(heard.append)

    act(builder, "degree", axis="tp", degree=2)

    assert heard == [builder.plan]


def test_what_does_not_fit_says_why():
    builder = LayoutBuilder(model("llama3-8b"), hardware("a100"), layout=Layout(dp=8))

    picture = builder.widget.picture

    assert not picture["fits"]
    assert "GiB" in picture["reasons"][0]
    assert not any(kind["fits"] for kind in picture["kinds"])


def test_suggestions_fit_and_a_click_loads_one():
    builder = LayoutBuilder(model("gpt2"), hardware("a100"), global_batch=64)
    act(builder, "choose", name="precision", value="bf16")

    act(builder, "suggest")
    if (searching := builder._searching) is not None:
        searching.join(60)
    picture = builder.widget.picture

    assert not picture["searching"]
    assert len(picture["found"]) > 1
    assert "layouts judged" in picture["foundText"]
    taken = act(builder, "take", index=0)
    assert taken["fits"]
    assert taken["error"] == ""
    assert builder.layout.num_ranks == 8


def test_a_search_that_finds_nothing_says_why():
    builder = LayoutBuilder(
        model("llama3-70b"), hardware("a100"), layout=Layout(fsdp=8)
    )

    act(builder, "suggest")
    if (searching := builder._searching) is not None:
        searching.join(60)

    assert "none of" in builder.widget.picture["error"]


def test_a_layout_without_fsdp_lets_dp_take_the_rest(builder):
    builder.layout = Layout(dp=8, tp=2)

    fills = [axis["name"] for axis in builder.widget.picture["axes"] if axis["fills"]]
    assert fills == ["dp"]
    assert len(builder.options(Axis.TP)) > 1
