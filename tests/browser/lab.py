"""Opening and running notebooks in JupyterLab as a person would."""

import nbformat

#: Runs code in the notebook's kernel and returns what it printed.
ASK = """async (code) => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code });
  let text = "";
  future.onIOPub = (message) => { text += message.content.text ?? ""; };
  await future.done;
  return text;
}"""


def open_notebook(page, lab, folder, cells, name="test.ipynb"):
    """Write a notebook, open it, wait until its kernel answers; return its path."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    path = folder / f"{len(list(folder.iterdir()))}-{name}"
    nbformat.write(notebook, path)
    open_file(page, lab, path)
    return path


def open_file(page, lab, path):
    """Open a notebook of the served folder and wait until its kernel answers."""
    page.goto(f"{lab}/lab/tree/{path.name}?reset")
    page.wait_for_function(
        "window.jupyterapp?.shell?.currentWidget?.sessionContext", timeout=240_000
    )
    # "Idle" shows before the kernel's websocket is up; Run All then does nothing.
    page.evaluate(
        """async () => {
          const widget = jupyterapp.shell.currentWidget;
          await widget.context.ready;
          await widget.sessionContext.ready;
          await widget.sessionContext.session.kernel.info;
        }"""
    )


def run_all(page):
    """Start all cells; `window.ran` becomes whether all went well."""
    page.evaluate(
        """() => {
          window.ran = null;
          jupyterapp.commands.execute("notebook:run-all-cells").then(
            (well) => { window.ran = well; });
        }"""
    )


def shut_down(page):
    """End the notebook's kernel, so that the next test gets its own."""
    page.evaluate(
        """async () => {
          await jupyterapp.shell.currentWidget.sessionContext.shutdown();
        }"""
    )


def wait_for_widget(page, selector):
    """Wait until a widget is drawn; fail at once, with its words, where a cell failed."""
    page.wait_for_function(
        "name => document.querySelector(name) || window.ran === false",
        arg=selector,
        timeout=240_000,
    )
    if page.locator(selector).count() == 0:
        outputs = page.locator(".jp-Notebook .jp-OutputArea").all_text_contents()
        raise AssertionError("\n".join(outputs)[-3000:])
