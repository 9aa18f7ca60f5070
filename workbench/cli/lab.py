"""`workbench lab`: JupyterLab, opened on the quickstart with the Workbench kernel."""

import json
import os
import sys
from pathlib import Path

import click
from jupyter_client.kernelspec import get_kernel_spec
from jupyter_core.paths import jupyter_runtime_dir


@click.command(help="Open JupyterLab on the quickstart notebook.")
@click.argument("folder", default=".", type=click.Path(exists=True, path_type=Path))
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def command(folder: Path, *, no_browser: bool) -> None:
    """Replace this process by JupyterLab, so that Ctrl-C and exit codes are its own."""
    quickstart = folder / "notebooks" / "01-quickstart.ipynb"
    arguments = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={folder.resolve()}",
        "--MultiKernelManager.default_kernel_name=workbench",
    ]
    if quickstart.exists():
        arguments.append(
            f"--LabApp.default_url=/lab/tree/{quickstart.relative_to(folder)}"
        )
    if no_browser:
        arguments.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--allow-root")
    others = os.environ.get("JUPYTER_PATH")
    paths = [str(standing_in()), *([others] if others else [])]
    os.environ["JUPYTER_PATH"] = os.pathsep.join(paths)
    os.execv(sys.executable, arguments)  # noqa: S606 - our own interpreter


def standing_in() -> Path:
    """Write the Workbench kernel under the name "python3"; return its data folder.

    Notebooks in git name the plain kernel, so that they run anywhere; in this Lab they
    get the Workbench kernel, which has the extension loaded.
    """
    folder = Path(jupyter_runtime_dir()) / "workbench-lab"
    target = folder / "kernels" / "python3" / "kernel.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    spec = get_kernel_spec("workbench").to_dict()
    target.write_text(json.dumps(spec), encoding="utf-8")
    return folder
