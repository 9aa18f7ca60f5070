"""`workbench run`: execute a notebook headless and show its text as it comes."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import click
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from workbench import units
from workbench.errors import WorkbenchError


class _LiveClient(NotebookClient):
    """A notebook client that prints text output at the moment it arrives."""

    def output(
        self,
        outs: list[Any],
        msg: dict[str, Any],
        display_id: str | None,
        cell_index: int,
    ) -> Any:
        content = msg["content"]
        if msg["msg_type"] == "stream":
            _show(content["text"])
        elif msg["msg_type"] in ("display_data", "execute_result"):
            _show(content["data"].get("text/plain", "") + "\n")
        return super().output(outs, msg, display_id, cell_index)


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _title(notebook: nbformat.NotebookNode) -> str:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            first: str = cell.source.splitlines()[0]
            return first.lstrip("# ")
    return "notebook"


@click.command(help="Execute a notebook headless and print its text output.")
@click.argument(
    "notebook", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Keep the run notebook."
)
@click.option(
    "--timeout", default=1800, show_default=True, help="Seconds for one cell."
)
def command(notebook: Path, output: Path | None, timeout: int) -> None:
    """Run the notebook in its own folder with this interpreter's kernel."""
    # Neither a debugger in the kernel nor its start-up notices help a headless run.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    started = time.monotonic()
    loaded = nbformat.read(notebook, as_version=4)
    click.echo(f"{_title(loaded)}  ({notebook})\n")
    client = _LiveClient(
        loaded,
        timeout=timeout,
        coalesce_streams=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(notebook.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise WorkbenchError(
            f"a cell of {notebook} failed: {error.ename}: {error.evalue}",
            hint=f"open it to look closer: jupyter lab {notebook}",
        ) from error
    finally:
        if output is not None:
            nbformat.write(loaded, output)
    click.echo(f"\nran in {units.seconds_text(time.monotonic() - started)}")
