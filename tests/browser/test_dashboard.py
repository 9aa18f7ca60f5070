"""The dashboard in a real browser: live from another process, closed without a token."""

import http.client

import pytest

from tests.browser import tools
from workbench.telemetry import RunStore

NAME = "<img src=x onerror='window.hacked = 1'>"


def open_run(page, dashboard, name):
    page.goto(f"{dashboard}/?token={tools.TOKEN}")
    page.wait_for_selector(".wb-runs", state="attached", timeout=240_000)
    page.locator(".wb-run-name", has_text=name).first.click(timeout=60_000)
    page.wait_for_function(
        "name => document.querySelector('.wb-title')?.textContent === name",
        arg=name,
        timeout=60_000,
    )


def changes_seen(page, wanted, within_s=60):
    """Collect the monitor's states until it changed so often; return them."""
    states = []
    for _ in range(within_s * 5):
        state = page.evaluate(tools.STATE)
        if state and (not states or state["seq"] != states[-1]["seq"]):
            states.append(state)
        if len(states) > wanted:
            return states
        page.wait_for_timeout(200)
    raise AssertionError(f"{len(states)} states in {within_s} s")


def assert_rising(state):
    for points in [*state["series"].values(), state["memory"]]:
        assert all(a < b for a, b in zip(points["x"], points["x"][1:], strict=False))


def test_a_run_of_another_process_is_followed_live(page, dashboard, synthetic, home):
    process = synthetic("--name", NAME, "--steps", 220, "--hz", 10)
    tools.wait_for(lambda: (home / "runs.db").exists(), within_s=30)

    open_run(page, dashboard, NAME)
    states = changes_seen(page, wanted=5)
    process.wait()
    page.wait_for_selector(".wb-badge[data-tone=done]", timeout=60_000)
    last = page.evaluate(tools.STATE)

    for state in [*states, last]:
        assert_rising(state)
    steps = [state["series"]["loss"]["x"][-1] for state in states if state["series"]]
    assert steps[0] < steps[-1]
    with RunStore(home / "runs.db", read_only=True) as store:
        stored = [e.payload for e in store.events(store.run().id, kind="metric")]
    assert last["series"]["loss"]["x"][-1] == stored[-1]["step"] == 220
    assert last["series"]["loss"]["y"][-1] == stored[-1]["loss"]
    for inked, colours in page.evaluate(tools.INK):
        assert inked > 500
        assert colours > 3


def test_names_are_never_markup(page, dashboard, synthetic, home):
    synthetic("--name", NAME, "--steps", 5, "--hz", 10).wait()

    open_run(page, dashboard, NAME)

    assert page.evaluate("window.hacked") is None
    assert page.locator(".wb-root img").count() == 0


def test_runs_are_filtered_and_chosen_by_keyboard(page, dashboard, synthetic):
    synthetic("--name", "alpha", "--steps", 3, "--hz", 20).wait()
    synthetic("--name", "beta", "--steps", 3, "--hz", 20).wait()
    page.goto(f"{dashboard}/?token={tools.TOKEN}")
    page.wait_for_selector(".wb-filter", timeout=240_000)

    page.focus(".wb-filter")
    page.keyboard.type("alpha")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.wait_for_function(
        "document.querySelector('.wb-title')?.textContent === 'alpha'", timeout=60_000
    )
    shown = page.locator(".wb-run-name").all_text_contents()
    assert set(shown) == {"alpha"}


@pytest.mark.parametrize(
    "path", ["/api/kernels", "/api/contents", "/voila/files/x", "/static/../dashboard"]
)
def test_without_a_token_nothing_is_told(dashboard, path):
    connection = http.client.HTTPConnection(dashboard.removeprefix("http://"))

    connection.request("GET", path)
    response = connection.getresponse()
    connection.close()

    if response.status == 302:
        assert "login" in response.headers["Location"]
    else:
        assert response.status in (403, 404)


def test_without_a_token_there_is_a_login_page_without_runs(page, dashboard):
    page.goto(dashboard)

    assert "login" in page.url
    assert page.locator(".wb-root").count() == 0


def test_the_address_with_its_token_is_printed_once(dashboard, tmp_path_factory):
    log = next(tmp_path_factory.getbasetemp().glob("dashboard*/log")).read_text()

    assert log.count("?token=") == 1
