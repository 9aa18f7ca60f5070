"""The files that say what gets installed agree with one another."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "constraints.txt").read_text()


def name_of(requirement: str) -> str:
    """Return a requirement's package name, normalised."""
    return re.match(r"[A-Za-z0-9._-]+", requirement).group().lower().replace("_", "-")


@pytest.mark.parametrize(
    "requirement",
    PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"],
)
def test_every_requirement_is_locked(requirement):
    locked = {name_of(line) for line in LOCK.splitlines() if "==" in line}

    assert name_of(requirement) in locked


def test_torch_is_locked_once_and_without_cuda_packages():
    torch = [line for line in LOCK.splitlines() if line.startswith("torch")]

    assert torch == ["torch==2.13.0"]
    assert not re.search(r"^(nvidia|triton|cuda)", LOCK, re.MULTILINE)


def test_conda_environment_takes_the_same_lock_and_python():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    pip = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))

    assert pip == ["-c constraints.txt", "-e ."]
    python = next(d for d in plain if d.startswith("python"))
    assert python.startswith(f"python{PROJECT['project']['requires-python']}")


@pytest.mark.parametrize("requirement", PROJECT["project"]["dependencies"])
def test_every_dependency_says_what_it_is_for(requirement):
    table = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## Dependencies and why")[2]
    )

    assert re.search(rf"\b{re.escape(name_of(requirement))}\b", table)
