"""A widget in a page without a kernel: the module, its data, and a model that answers.

What a report holds; also what the tests of a bare page open.
"""

import base64
import json
from typing import Any

from workbench_widgets.monitor.widget import MODULE, STYLE, pack
from workbench_widgets.payloads import MonitorUpdate

_DRIVER = """
const wbData = JSON.parse(document.getElementById("wb-data").textContent);
const wbBuffers = wbData.buffers.map((text) => {
	const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
	return new DataView(bytes.buffer);
});
let wbListener = () => {};
const wbModel = {
	get: (name) => (name === "start" ? wbData.message.panels : false),
	on(_, listener) { wbListener = listener; },
	off() {},
	send() { wbListener(wbData.message, wbBuffers); },
};
const wbDark = matchMedia("(prefers-color-scheme: dark)");
const wbTheme = () => { document.body.dataset.jpThemeLight = String(!wbDark.matches); };
wbDark.addEventListener("change", wbTheme);
wbTheme();
const wbMonitor = wbWidget();
wbMonitor.initialize({ model: wbModel });
wbMonitor.render({ model: wbModel, el: document.getElementById("wb-monitor") });
"""


def monitor_fragment(update: MonitorUpdate) -> str:
    """Return HTML that draws a monitor of finished data; it loads nothing."""
    message, buffers = pack("snapshot", 0, update)
    data = {
        "message": message,
        "buffers": [base64.b64encode(buffer).decode() for buffer in buffers],
    }
    module = MODULE.replace("export default", "const wbWidget =")
    return "\n".join(
        [
            f"<style>{STYLE}</style>",
            '<div id="wb-monitor"></div>',
            f'<script type="application/json" id="wb-data">{_json(data)}</script>',
            f'<script type="module">{module}\n{_DRIVER}</script>',
        ]
    )


def _json(data: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    return json.dumps(data).replace("<", "\\u003c")
