"""Runs the JavaScript tests with node, and checks what Python and JavaScript share."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from workbench_widgets import Builder, Monitor, RunList, Versus
from workbench_widgets.monitor.widget import pack
from workbench_widgets.payloads import MonitorUpdate

HERE = Path(__file__).parent
WIDGETS = HERE.parents[1] / "widgets" / "workbench_widgets"
NODE = shutil.which("node") or shutil.which("nodejs")

needs_node = pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")


def node(*arguments, stdin=None):
    return subprocess.run(
        [NODE, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_node
@pytest.mark.parametrize("path", sorted(HERE.glob("*.test.js")), ids=lambda p: p.name)
def test_node(path):
    done = node("--test", path)

    assert done.returncode == 0, done.stdout[-4000:]


@needs_node
@pytest.mark.parametrize("widget", [Builder, Monitor, RunList, Versus])
def test_the_joined_module_is_one_module(widget, tmp_path):
    module = tmp_path / "module.mjs"
    module.write_text(str(widget.__dict__["_esm"]))

    done = node("--check", module)

    assert done.returncode == 0, done.stderr
    assert not re.search(r"^(import|export (?!default))", module.read_text(), re.M)


@pytest.mark.parametrize("path", sorted(WIDGETS.rglob("*.js")), ids=lambda p: p.name)
def test_data_is_never_put_in_as_markup(path):
    text = path.read_text()

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text
    )


READ = """
import { createState, take } from "WIDGETS/monitor/state.js";
let text = "";
for await (const part of process.stdin) text += part;
const { message, buffers } = JSON.parse(text);
const state = createState();
take(state, message, buffers.map((part) => {
  const bytes = Uint8Array.from(Buffer.from(part, "base64"));
  return new DataView(bytes.buffer);
}));
const { seq, series, memory } = state;
console.log(JSON.stringify({ seq, series, memory }));
"""


@needs_node
def test_what_python_packs_javascript_reads(tmp_path):
    update = MonitorUpdate(
        series={"loss": ([1, 2], [5.5, 1 / 3]), "lr": ([2], [1e-4])},
        memory_names=["rank 0", "rank 1"],
        memory_x=[0.5, 1.0],
        memory_rows=[[1024.0, 2048.0], [4096.0, 8192.0]],
    )
    message, buffers = pack("snapshot", 7, update)
    script = tmp_path / "read.mjs"
    script.write_text(READ.replace("WIDGETS", str(WIDGETS)))
    packed = [base64.b64encode(part).decode() for part in buffers]

    done = node(script, stdin=json.dumps({"message": message, "buffers": packed}))

    assert json.loads(done.stdout) == {
        "seq": 7,
        "series": {
            "loss": {"x": [1, 2], "y": [5.5, 1 / 3]},
            "lr": {"x": [2], "y": [1e-4]},
        },
        "memory": {
            "names": ["rank 0", "rank 1"],
            "x": [0.5, 1],
            "columns": [[1024, 4096], [2048, 8192]],
            "band": [],
        },
    }
