"""`workbench dashboard`: the team dashboard, served by Voila."""

import os
import secrets
import socket
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from workbench.errors import WorkbenchError

_TEMPLATE = Path("share/jupyter/voila/templates/workbench")


@click.command(help="Serve the dashboard: all runs, one of them live, read only.")
@click.option("--port", default=8866, show_default=True, help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light")
@click.option("--base-url", default="/", help="Path under which a proxy serves it.")
@click.option("--warm", default=0, help="Kernels kept ready, so that pages open fast.")
@click.option("--open/--no-open", "opens", default=False, help="Open a browser.")
@click.option(
    "--token",
    envvar="WORKBENCH_TOKEN",
    help="What viewers must show; made anew by default. Better set WORKBENCH_TOKEN.",
)
def command(
    *,
    port: int,
    host: str,
    theme: str,
    base_url: str,
    warm: int,
    opens: bool,
    token: str | None,
) -> None:
    """Serve until Ctrl-C."""
    from voila.app import Voila

    token = token or secrets.token_urlsafe(24)
    port = port or _free_port(host)
    arguments = _arguments(port=port, host=host, theme=theme, warm=warm, opens=opens)
    if base_url != "/":
        arguments.append(f"--base_url={base_url}")
    with _files() as (notebook, data):
        os.environ["JUPYTER_PATH"] = os.pathsep.join(
            filter(None, [str(data), os.environ.get("JUPYTER_PATH")])
        )
        path = base_url.rstrip("/")
        click.echo(f"Workbench dashboard: http://{host}:{port}{path}/?token={token}")
        # As an argument of a function, the token is in no list of processes.
        Voila.launch_instance(argv=[str(notebook), f"--token={token}", *arguments])


def _arguments(
    *, port: int, host: str, theme: str, warm: int, opens: bool
) -> list[str]:
    arguments = [
        f"--port={port}",
        f"--Voila.ip={host}",
        "--template=workbench",
        f"--theme={theme}",
        # Neither a notebook nor a request chooses another look.
        "--VoilaConfiguration.allow_template_override=NO",
        "--VoilaConfiguration.allow_theme_override=NO",
        # A page that was left without a word gives its kernel back.
        "--MappingKernelManager.cull_interval=60",
        "--MappingKernelManager.cull_idle_timeout=600",
        "--MappingKernelManager.cull_connected=False",
        "--Voila.log_level=WARN",
    ]
    if warm:
        arguments.append("--preheat_kernel=True")
        arguments.append(f"--pool_size={warm}")
    if not opens:
        arguments.append("--no-browser")
    return arguments


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _files() -> Iterator[tuple[Path, Path]]:
    """Yield the notebook and a Jupyter data folder that holds the template.

    Of the checkout where there is one, so that what is edited is what is served; else
    of the installed wheel.
    """
    checkout = Path(__file__).parents[2] / "notebooks"
    if (checkout / "dashboard.ipynb").exists():
        with tempfile.TemporaryDirectory(prefix="wb-") as folder:
            templates = Path(folder) / "voila" / "templates"
            templates.mkdir(parents=True)
            (templates / "workbench").symlink_to(checkout / "voila")
            yield checkout / "dashboard.ipynb", Path(folder)
        return
    prefix = Path(sysconfig.get_path("data"))
    notebook = prefix / "share" / "workbench" / "dashboard.ipynb"
    if not notebook.exists() or not (prefix / _TEMPLATE).is_dir():
        raise WorkbenchError(
            f"the dashboard's notebook or template is missing below {prefix}/share",
            hint="install workbench-distributed again",
        )
    yield notebook, prefix / "share" / "jupyter"
