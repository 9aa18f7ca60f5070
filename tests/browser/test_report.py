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


def test_what_is_on_screen_is_saved_as_files(
    page, synthetic, home, tmp_path, monkeypatch
):
    synthetic("--name", "saved", "--steps", 20, "--hz", 60).wait()
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    page.goto(write_report(None, tmp_path / "report.html").as_uri())
    page.wait_for_selector(".wb-chart canvas")

    with page.expect_download() as points:
        page.click("text=Save points as CSV")
    with page.expect_download() as charts:
        page.click("text=Save charts as PNG")

    lines = points.value.path().read_text().splitlines()
    assert sum(line.startswith("Loss,training,") for line in lines) == 20
    assert charts.value.path().read_bytes().startswith(b"\x89PNG")


def test_many_ranks_are_drawn_as_a_map_and_one_is_picked(
    page, synthetic, home, tmp_path, monkeypatch
):
    synthetic("--name", "many", "--ranks", 64, "--steps", 30, "--hz", 30).wait()
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    page.goto(write_report(None, tmp_path / "report.html").as_uri())
    page.wait_for_selector(".wb-heat")

    page.focus(".wb-heat")
    page.keyboard.press("ArrowDown")

    page.wait_for_selector(".wb-chart .u-legend >> text=rank 1")
    assert (
        page.locator(".wb-panel:has(> .wb-heat)").text_content().count("rank 1 at") == 1
    )
