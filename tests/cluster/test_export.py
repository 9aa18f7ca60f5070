"""An exported session runs as a job and gives the notebook's numbers."""

import subprocess

import pytest

import workbench as wb
from workbench.errors import SessionError
from workbench.session.connect import launch

pytestmark = pytest.mark.cluster

TRAIN = (
    "from workbench.data import python_source\n"
    "from workbench.training import Trainer\n"
    "corpus = python_source(tokens_per_sample=plan.model.tokens_per_sample)\n"
    "trainer = Trainer(plan, corpus, ranks, seed=3)\n"
    "result = trainer.fit(num_steps=3)"
)
SHOW = "print('final loss', repr(result.losses[-1]), flush=True)"


@pytest.mark.timeout(180)  # two training processes import torch from cold
def test_a_job_gives_the_notebook_s_losses(tmp_path):
    model = wb.model(
        "gpt",
        hidden=32,
        num_layers=1,
        num_heads=2,
        tokens_per_sample=16,
        vocab_size=256,
    )
    plan = wb.plan(model, wb.hardware("cpu"), wb.Layout(dp=2), global_batch=4)
    with launch(plan, name="export", oversubscribe=True) as session:
        session.run_cell(TRAIN)
        session.run_cell(SHOW, ranks=0)
        expected = session.get("result.losses[-1]", ranks=0)
        session.export(tmp_path / "job")

    done = subprocess.run(
        [tmp_path / "job" / "run.sh"], capture_output=True, text=True, timeout=150
    )

    assert done.returncode == 0, done.stderr
    assert f"final loss {expected!r}" in done.stdout
    assert done.stdout.count("final loss") == 1


def test_cells_that_failed_are_left_out(session, tmp_path):
    session.run_cell("before_export = 1")
    with pytest.raises(wb.WorkbenchError):
        session.run_cell("fails_in_export")

    script = session.export(tmp_path).read_text()

    assert "before_export = 1" in script
    assert "fails_in_export" not in script


def test_a_shell_line_is_refused_with_its_number(tmp_path):
    from workbench.session.export import write_job

    cells = [{"code": "x = 1", "ranks": None}, {"code": "!ls", "ranks": None}]
    layout = wb.Layout(dp=2).to_toml()

    with pytest.raises(SessionError, match="cell 2 cannot be exported"):
        write_job(tmp_path, {"cells": cells, "layout": layout, "plan_json": ""})
