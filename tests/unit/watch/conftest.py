"""A private home, a session without ranks, and a plan for two."""

import pytest

from workbench.hardware.presets import hardware
from workbench.layout import Layout
from workbench.model.presets import model
from workbench.planner import plan as judge
from workbench.testing.replay import FakeSession


@pytest.fixture(autouse=True)
def private_home(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def plan():
    return judge(
        model("gpt", hidden=32, num_layers=1, num_heads=2, vocab_size=64),
        hardware("a100"),
        Layout(dp=2),
        global_batch=4,
    )


@pytest.fixture
def session():
    session = FakeSession()
    yield session
    session.close()


@pytest.fixture
def run(session, plan):
    return session.begin(
        name="<b>run</b>",
        num_ranks=2,
        layout_toml=plan.layout.to_toml(),
        plan_json=plan.to_json(),
    )
