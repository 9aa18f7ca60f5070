"""Servers to open and pages to look at; all on loopback, all with private folders."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOKEN = "browser-test"

#: Per canvas of the monitor: pixels that are drawn, and how many colours they have.
INK = """() => [...document.querySelectorAll(".wb-chart canvas")].map((canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  let inked = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 128) continue;
    inked += 1;
    colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  }
  return [inked, colours.size];
})"""

#: What the newest monitor on the page draws, as data.
STATE = """() => {
  const root = [...document.querySelectorAll(".wb-monitor")].pop();
  if (!root) return null;
  const { seq, complete, series, memory, panels } = root.wbState;
  return { seq, complete, series, memory, panels };
}"""


@dataclass
class Watched:
    """What a page did wrong: errors, and requests that left this machine."""

    errors: list[str] = field(default_factory=list)
    strayed: list[str] = field(default_factory=list)

    def watch(self, page):
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._look(request.url))

    def _look(self, url):
        local = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "file:")
        if not url.startswith(local):
            self.strayed.append(url)


def environment(folder, home):
    """Return an environment in which Jupyter and workbench keep to a folder."""
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True, exist_ok=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    return {
        **os.environ,
        "WORKBENCH_HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


@contextlib.contextmanager
def serving(command, *, port, ready, env, cwd, log):
    """Run a server until the block ends; wait until `ready` answers."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        try:
            wait_for(lambda: answers(ready, process, log), within_s=240)
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(process)


def stop(process):
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # Kernels are sessions of their own; the server has told them to end.


def answers(url, process, log):
    assert process.poll() is None, log.read_text(errors="replace")[-3000:]
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def wait_for(condition, *, within_s):
    deadline = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return result


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def python(*arguments):
    return [sys.executable, *arguments]
