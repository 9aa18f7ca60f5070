"""The layout builder in JupyterLab, by mouse and by keyboard."""

import json
import os

from tests.browser import tools
from tests.browser.lab import ASK, open_notebook, run_all, wait_for_widget

CELL = (
    "import json\n"
    "import workbench as wb\n"
    "builder = wb.LayoutBuilder(wb.model('llama3-8b'), wb.hardware('h100', num_nodes=8))\n"
    "builder"
)

#: Milliseconds from a click to the next frame that shows its answer, in the browser.
STEP_MS = """async () => {
  const more = document.querySelector("[data-axis=tp] [data-step='1']");
  const less = document.querySelector("[data-axis=tp] [data-step='-1']");
  const degree = document.querySelector("[data-axis=tp] .wb-degree");
  const times = [];
  for (let turn = 0; turn < 10; turn += 1) {
    const button = more.disabled ? less : more;
    const before = degree.textContent;
    const began = performance.now();
    button.click();
    while (degree.textContent === before) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[5];
}"""


def test_a_layout_is_built_by_mouse_and_by_keyboard(page, lab, notebooks):
    open_notebook(page, lab, notebooks, [CELL])
    run_all(page)
    wait_for_widget(page, ".wb-builder")

    page.click("[data-axis=tp] [data-step='1']")
    page.wait_for_function(
        "document.querySelector('[data-axis=tp] .wb-degree').textContent === '2'"
    )
    page.focus("[data-axis=tp] .wb-degree")
    page.keyboard.press("ArrowUp")
    page.wait_for_function(
        "document.querySelector('[data-axis=tp] .wb-degree').textContent === '4'"
    )
    page.keyboard.press("Alt+ArrowUp")
    page.wait_for_function(
        "[...document.querySelectorAll('[data-axis]')].at(-1).dataset.axis !== 'tp'"
    )
    page.select_option("select[name=precision]", "bf16")
    page.wait_for_function(
        "document.querySelector('.wb-texts').textContent.includes('bf16')"
    )

    shown = page.evaluate(
        "document.querySelector('.wb-builder .wb-tile:nth-child(4) .wb-value').textContent"
    )
    told = json.loads(
        page.evaluate(
            ASK,
            "from workbench.units import bytes_text\n"
            "plan = wb.plan(builder.model, builder.hardware, builder.layout,"
            " global_batch=builder.global_batch)\n"
            "print(json.dumps([builder.layout.tp, builder.layout.precision,"
            " bytes_text(plan.peak.peak_bytes)]))",
        )
    )
    assert told == [4, "bf16", shown]


def test_a_suggestion_is_taken_with_a_click(page, lab, notebooks):
    if "WORKBENCH_SCREENSHOTS" in os.environ:
        page.set_viewport_size({"width": 1640, "height": 1500})
    open_notebook(page, lab, notebooks, [CELL.replace("num_nodes=8", "num_nodes=2")])
    run_all(page)
    wait_for_widget(page, ".wb-builder")
    page.select_option("select[name=precision]", "bf16")

    page.click("text=Suggest layouts")
    page.click(".wb-found button >> nth=0", timeout=120_000)

    page.wait_for_selector(".wb-builder .wb-badge[data-tone=good]")
    figures = page.locator(".wb-found button span").first.text_content()
    step = page.locator(".wb-builder .wb-tile .wb-value").first.text_content()
    assert figures.startswith(f"{step}, ")
    if "WORKBENCH_SCREENSHOTS" in os.environ:
        page.locator(".wb-builder").screenshot(
            path=tools.ROOT / "widgets" / "screenshots" / "builder.png"
        )


def test_the_cluster_is_drawn_and_a_rank_is_told_of(page, lab, notebooks):
    open_notebook(page, lab, notebooks, [CELL])
    run_all(page)
    wait_for_widget(page, ".wb-cluster")

    page.focus(".wb-cluster")
    page.keyboard.press("ArrowRight")

    page.wait_for_function(
        "document.querySelector('.wb-rank-words').textContent.startsWith('Rank 1 on node 0')"
    )
    ink = tools.INK.replace(".wb-chart canvas", ".wb-cluster")
    ((inked, colours),) = page.evaluate(ink)
    assert inked > 5000
    assert colours > 8
    print("step to picture, ms:", page.evaluate(STEP_MS))
