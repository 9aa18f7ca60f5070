"""A report opens as a file, alone, and draws the run that the store holds."""

from tests.browser import tools
from workbench.notebook.runs import write_report


def test_a_report_draws_by_itself(page, synthetic, home, tmp_path, monkeypatch):
    synthetic("--name", "<i>report</i>", "--steps", 60, "--hz", 60).wait()
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    path = write_report(None, tmp_path / "report.html")

    page.goto(path.as_uri())
    page.wait_for_selector(".wb-monitor canvas")
    page.wait_for_timeout(500)

    state = page.evaluate(tools.STATE)
    assert state["series"]["loss"]["x"] == list(range(1, 61))
    assert page.locator("h1").text_content() == "<i>report</i>"
    for inked, colours in page.evaluate(tools.INK):
        assert inked > 500
        assert colours > 3
