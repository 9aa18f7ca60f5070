"""`workbench lab`: JupyterLab, opened on the quickstart."""

import os
import sys
from pathlib import Path

import click


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
    ]
    if quickstart.exists():
        arguments.append(
            f"--LabApp.default_url=/lab/tree/{quickstart.relative_to(folder)}"
        )
    if no_browser:
        arguments.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--allow-root")
    os.execv(sys.executable, arguments)  # noqa: S606 - our own interpreter
