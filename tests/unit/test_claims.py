"""Every line of an issue's table names a test or benchmark that is really there."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLAIMS = tomllib.loads((ROOT / "tests/claims.toml").read_text())
#: The lines of the tables of the issues whose work has begun, by issue.
LINES = {
    "foundation": {
        "correct",
        "honest plan",
        "accounted for",
        "learns",
        "cheap",
        "light",
        "usable",
        "bad input",
    },
}


def functions(path: Path) -> set[str]:
    """Return the test functions of a file, methods as Class::name."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


@pytest.mark.parametrize("table", LINES)
def test_every_line_of_the_table_has_an_entry(table):
    assert {entry["line"] for entry in CLAIMS[table]} == LINES[table]


@pytest.mark.parametrize(
    "entry", [e for t in LINES for e in CLAIMS.get(t, [])], ids=str
)
def test_what_shows_a_claim_is_there(entry):
    shown_by = entry.get("tests", []) + entry.get("benches", [])

    assert shown_by, f"{entry['line']}: nothing shows it"
    for test in entry.get("tests", []):
        path, _, name = test.partition("::")
        assert name in functions(ROOT / path), f"{entry['line']}: no {test}"
    for bench in entry.get("benches", []):
        assert (ROOT / bench).is_file(), f"{entry['line']}: no {bench}"
