"""A wheel built from the tree works in an environment of its own, outside the tree."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDGET_SUFFIXES = {".js", ".css"}


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Run a command outside the tree and return what it printed."""
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder,
        ROOT,
        cwd=folder,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Path:
    """Return the bin folder of an environment that holds only the wheel's install."""
    home = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "venv", home / "env", cwd=home)
    python = home / "env/bin/python"
    run(python, "-m", "pip", "install", "-q", "--upgrade", "pip", cwd=home)
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=home)
    return home / "env/bin"


def test_every_widget_file_of_the_tree_is_in_the_wheel(wheel):
    tree = {
        str(path.relative_to(ROOT / "widgets"))
        for path in (ROOT / "widgets/workbench_widgets").rglob("*")
        if path.suffix in WIDGET_SUFFIXES
    }
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())

    assert tree
    assert tree <= inside


@pytest.mark.timeout(900)
class TestInstalled:
    def test_kernelspecs_are_listed(self, installed):
        out = run(installed / "jupyter", "kernelspec", "list", "--json", cwd=installed)
        specs = json.loads(out)["kernelspecs"]

        assert {"workbench", "workbench-attach"} <= set(specs)
        assert str(installed.parent) in specs["workbench"]["resource_dir"]

    def test_import_loads_no_torch(self, installed):
        code = (
            "import sys, workbench; print('torch' in sys.modules, workbench.__file__)"
        )
        out = run(installed / "python", "-c", code, cwd=installed)

        assert out.startswith("False")
        assert str(installed.parent) in out

    def test_widgets_open_from_the_install(self, installed):
        code = (
            "import workbench_widgets as w\n"
            "for name in w.__all__:\n"
            "    kind = getattr(w, name)\n"
            "    print(name, len(str(kind._esm)), len(str(kind._css)))"
        )
        opened = run(installed / "python", "-c", code, cwd=installed).splitlines()

        assert len(opened) >= 3
        for line in opened:
            name, *sizes = line.split()
            assert all(int(size) > 1000 for size in sizes), name

    def test_dashboard_notebook_and_template_are_installed(self, installed):
        share = installed.parent / "share"

        assert (share / "workbench/dashboard.ipynb").is_file()
        assert (share / "jupyter/voila/templates/workbench/index.html.j2").is_file()

    def test_a_plan_is_printed(self, installed):
        code = (
            "import workbench as wb; m = wb.model('gpt', hidden=64, num_layers=2, num_heads=2,"
            " tokens_per_sample=32, vocab_size=256);"
            "print(wb.plan(m, wb.hardware('cpu'), wb.Layout(dp=2), global_batch=4))"
        )
        assert "dp" in run(installed / "python", "-c", code, cwd=installed)
