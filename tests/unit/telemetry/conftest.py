"""Fixtures of the telemetry tests: a private home, a store, events."""

import pytest

from workbench.telemetry import Event, RunStore


@pytest.fixture(autouse=True)
def private_home(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def store(tmp_path):
    with RunStore(tmp_path / "runs.db") as store:
        yield store


@pytest.fixture
def metric():
    def make(step, *, run="r", rank=0, **values):
        return Event(
            kind="metric",
            rank=rank,
            run=run,
            cause=f"step:{step}",
            payload={"step": step, **values},
        )

    return make


@pytest.fixture
def sample():
    def make(wall_s, *, run="r", rank=0, **values):
        return Event(
            kind="sample",
            rank=rank,
            run=run,
            cause="sampler",
            payload=values,
            wall_s=wall_s,
        )

    return make


@pytest.fixture
def collective():
    def make(cause, *, run="r", rank=0, op="all_reduce", axis="dp", **values):
        return Event(
            kind="collective",
            rank=rank,
            run=run,
            cause=cause,
            payload={"op": op, "axis": axis, "phase": "step", **values},
        )

    return make
