"""`workbench plan`: predict memory, traffic and step time of a layout."""

from pathlib import Path

import click

from workbench.errors import ModelError
from workbench.hardware import hardware as named_hardware
from workbench.layout import Axis, Layout, load_layout
from workbench.model import ModelSpec
from workbench.model import model as named_model
from workbench.model.toml_file import load_model
from workbench.planner import plan

_DEGREES = [axis.value for axis in Axis]


@click.command(name="plan")
@click.argument("model")
@click.option(
    "--set", "overrides", multiple=True, help="a number of the model: hidden=512"
)
@click.option("--hardware", default="cpu", show_default=True)
@click.option("--nodes", default=1, show_default=True, help="nodes of that hardware")
@click.option("--layout", "layout_file", type=Path, help="a layout in TOML")
@click.option(
    "--axis", "axes", multiple=True, help="part of a layout: dp=2, precision=bf16"
)
@click.option(
    "--batch", required=True, type=int, help="samples per step over all ranks"
)
@click.option("--profile", default="workbench", show_default=True)
@click.option("--explain", "figure", help="show one figure's working: memory.weights")
@click.option("--json", "as_json", is_flag=True, help="print the plan as JSON")
def command(
    *,
    model: str,
    overrides: tuple[str, ...],
    hardware: str,
    nodes: int,
    layout_file: Path | None,
    axes: tuple[str, ...],
    batch: int,
    profile: str,
    figure: str | None,
    as_json: bool,
) -> None:
    """Judge a layout of MODEL: a preset's name or a TOML file.

    \b
    workbench plan gpt2-xl --axis fsdp=2 --batch 8
    workbench plan model.toml --hardware h100 --nodes 8 --layout layout.toml --batch 64
    """  # noqa: D301
    layout = load_layout(layout_file) if layout_file else Layout()
    if axes:
        layout = Layout.from_toml(_merged(layout, axes))
    made = plan(
        _model(model, overrides),
        named_hardware(hardware, num_nodes=nodes),
        layout,
        global_batch=batch,
        profile=profile,
    )
    if as_json:
        click.echo(made.to_json())
    else:
        click.echo(str(made.explain(figure) if figure else made))


def _model(name: str, overrides: tuple[str, ...]) -> ModelSpec:
    """Return a preset, or a model from a TOML file, with numbers replaced."""
    numbers = dict(_pair(text) for text in overrides)
    if name.endswith(".toml"):
        return load_model(Path(name), **numbers)
    return named_model(name, **numbers)


def _pair(text: str) -> tuple[str, int | float | bool]:
    key, _equals, value = text.partition("=")
    if value in {"true", "false"}:
        return key, value == "true"
    try:
        return key, float(value) if "." in value else int(value)
    except ValueError as error:
        raise ModelError(
            f"--set {text!r} is no number", hint="write e.g. --set hidden=512"
        ) from error


def _merged(layout: Layout, axes: tuple[str, ...]) -> str:
    """Return a layout's TOML with some keys set anew."""
    given = dict(text.partition("=")[::2] for text in axes)
    kept = [
        line
        for line in layout.to_toml().splitlines()
        if line.partition(" = ")[0] not in given
    ]
    return "\n".join([*kept, *(f"{k} = {_toml(v)}" for k, v in given.items())])


def _toml(value: str) -> str:
    plain = value.isdigit() or value in {"true", "false"} or value.startswith("[")
    return value if plain else f'"{value}"'
