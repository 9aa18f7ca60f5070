"""Presets have their published shapes; what contradicts itself is refused with a way out."""

import pytest

from workbench.errors import ModelError
from workbench.model import PRESETS, ModelSpec, model
from workbench.model.toml_file import load_model, read_model

# Parameter counts as published: GPT-2 XL and GPT-3 by their authors (rounded), the
# others by the sizes of the released checkpoints.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_its_published_parameters(name):
    assert model(name).num_parameters == PUBLISHED[name]


def test_gpt3_counts_175_billion():
    # The paper says 175.0 B; its own table rounds (175,181 M with biases and norms).
    assert model("gpt3-175b").num_parameters == pytest.approx(175e9, rel=0.003)


@pytest.mark.parametrize("name", PRESETS)
def test_json_gives_an_equal_model_back(name):
    spec = model(name)

    assert ModelSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_named_parameters_are_all_the_parameters(name):
    spec = model(name, num_layers=3)

    names = dict(spec.named_parameters())

    assert sum(p.num_elements for p in names.values()) == spec.num_parameters
    assert "layers.2.mlp.down.weight" in names


def test_a_tied_head_adds_no_parameters():
    tied, free = model("gpt", tied=True), model("gpt")

    assert free.num_parameters - tied.num_parameters == 256 * 128


def test_overrides_are_said_in_the_source():
    assert "replaced" in model("gpt2", num_layers=2).source


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ({"hidden": 130}, "hidden 130 does not divide by num_heads 4", "num_heads=2"),
        ({"num_kv_heads": 3}, "num_heads 4 does not divide into", "num_kv_heads=2"),
        ({"num_layers": 0}, "num_layers is 0", "leave num_layers out"),
        ({"hiden": 64}, "has no number 'hiden'", "'hidden'"),
        ({"vocab_size": 2.5}, "vocab_size is 2.5", "leave vocab_size out"),
    ],
)
def test_an_impossible_model_is_refused_with_a_way_out(asked, message, hint):
    with pytest.raises(ModelError) as caught:
        model("gpt", **asked)

    assert message in caught.value.message
    assert hint in caught.value.hint


def test_an_unknown_model_is_named_with_the_nearest():
    with pytest.raises(ModelError) as caught:
        model("llama3-7b")

    assert "llama3-70b" in caught.value.hint or "llama3-8b" in caught.value.hint


def test_a_model_file_names_a_preset_and_what_differs():
    spec = read_model('[model]\npreset = "gpt"\nhidden = 64')

    assert spec == model("gpt", hidden=64)


def test_a_missing_model_file_is_said_with_its_path(tmp_path):
    with pytest.raises(ModelError, match=r"no model file at .*m\.toml"):
        load_model(tmp_path / "m.toml")


def test_json_of_something_else_is_refused():
    with pytest.raises(ModelError, match="not a model in JSON"):
        ModelSpec.from_json('{"name": 3}')
