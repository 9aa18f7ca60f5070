"""One Chromium, one JupyterLab and one dashboard for all browser tests."""

import contextlib
import shutil
import subprocess

import pytest

from tests.browser import tools
from tests.browser.lab import shut_down

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.browser)
        # A loaded machine takes a minute to draw JupyterLab.
        item.add_marker(pytest.mark.timeout(420))


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """The run store that servers, kernels and tests share."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def env(tmp_path_factory, home):
    return tools.environment(tmp_path_factory.mktemp("jupyter"), home)


@pytest.fixture(scope="session")
def chromium():
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                # No name but loopback's is resolved: as on a machine without network.
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A page that must load nothing from elsewhere and raise nothing."""
    watched = tools.Watched()
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    watched.watch(page)
    yield page
    if "/lab/" in page.url:
        shut_down(page)
    context.close()
    assert watched.strayed == []
    assert watched.errors == []


@pytest.fixture(scope="session")
def notebooks(tmp_path_factory):
    """The folder that JupyterLab shows."""
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="session")
def lab(env, notebooks, tmp_path_factory):
    port = tools.free_port()
    command = tools.python(
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={notebooks}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
    )
    log = tmp_path_factory.mktemp("lab") / "log"
    ready = f"http://127.0.0.1:{port}/api"
    with tools.serving(
        command, port=port, ready=ready, env=env, cwd=notebooks, log=log
    ) as url:
        yield url


@pytest.fixture(scope="session")
def dashboard(env, tmp_path_factory):
    """The dashboard, started outside the tree as a person would start it."""
    port = tools.free_port()
    folder = tmp_path_factory.mktemp("dashboard")
    command = tools.python("-m", "workbench", "dashboard", f"--port={port}")
    with tools.serving(
        command,
        port=port,
        ready=f"http://127.0.0.1:{port}/",
        env={**env, "WORKBENCH_TOKEN": tools.TOKEN},
        cwd=folder,
        log=folder / "log",
    ) as url:
        yield url


@pytest.fixture
def synthetic(env, tmp_path):
    """Start synthetic runs in processes of their own."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            process = subprocess.Popen(
                tools.python("-m", "workbench.testing.replay", *map(str, arguments)),
                env=env,
                cwd=tmp_path,
                start_new_session=True,
            )
            stack.callback(tools.stop, process)
            return process

        yield start
