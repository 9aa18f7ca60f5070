"""Models as TOML: a preset's name and the numbers that differ."""

import tomllib
from pathlib import Path

from workbench.errors import ModelError
from workbench.model.presets import model
from workbench.model.spec import ModelSpec

_EXAMPLE = '[model]\npreset = "gpt"\nhidden = 512'


def read_model(text: str, **overrides: float | bool) -> ModelSpec:
    r"""Read a model from TOML text: `preset`, and numbers of it that are replaced.

    Raises:
        ModelError: Not TOML, no preset named, or what `model` raises.

    >>> read_model('[model]\npreset = "gpt"\nnum_layers = 2').number("num_layers")
    2
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"not TOML: {error}", hint=f"e.g. {_EXAMPLE}") from error
    table = raw.get("model", raw)
    if not isinstance(table, dict) or not isinstance(table.get("preset"), str):
        raise ModelError("a model file names no preset", hint=f"e.g. {_EXAMPLE}")
    numbers = {key: value for key, value in table.items() if key != "preset"}
    return model(table["preset"], **{**numbers, **overrides})


def load_model(path: Path, **overrides: float | bool) -> ModelSpec:
    """Read a model from a TOML file.

    Raises:
        ModelError: No such file, or what `read_model` raises, with the path.
    """
    if not path.is_file():
        raise ModelError(f"no model file at {path}", hint=f"write e.g. {_EXAMPLE}")
    try:
        return read_model(path.read_text(), **overrides)
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", hint=error.hint) from error
