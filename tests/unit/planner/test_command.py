"""`workbench plan`: a preset or a file, a layout in pieces, errors without a traceback."""

import json

from click.testing import CliRunner, Result

from workbench.cli import main


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["plan", *words])


def test_a_preset_is_planned():
    done = run("gpt2", "--hardware", "h100", "--axis", "fsdp=8", "--batch", "8")

    assert done.exit_code == 0
    assert "gpt2" in done.output
    assert "all_gather weights on fsdp" in done.output


def test_a_file_with_a_layout_file_is_planned(tmp_path):
    model, layout = tmp_path / "model.toml", tmp_path / "layout.toml"
    model.write_text('[model]\npreset = "gpt"\nhidden = 64')
    layout.write_text("[layout]\ndp = 2")

    done = run(
        str(model), "--layout", str(layout), "--hardware", "a100", "--batch", "4",
        "--set", "num_layers=2", "--json",
    )  # fmt: skip

    made = json.loads(done.output)
    assert made["layout"]["dp"] == 2
    assert dict(made["model"]["hyper"])["num_layers"] == 2


def test_one_figure_is_explained():
    done = run("gpt", "--hardware", "a100", "--batch", "1", "--explain", "memory.peak")

    assert "source: " in done.output


def test_a_typo_is_an_error_of_two_lines():
    done = run("gpt", "--hardware", "a100", "--axis", "fdsp=2", "--batch", "2")

    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "Error: a layout has no 'fdsp'",
        "hint: did you mean 'fsdp'?",
    ]


def test_a_number_that_is_none_is_refused():
    done = run("gpt", "--hardware", "a100", "--batch", "2", "--set", "hidden=wide")

    assert "is no number" in done.output
