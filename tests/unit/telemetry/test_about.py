import json
import sqlite3

from workbench.telemetry import RunStore
from workbench.telemetry.about import about_here, git_commit
from workbench.telemetry.recorder import Recorder


def test_versions_are_told_without_importing():
    about = about_here()

    assert about["torch"]
    assert about["python"].startswith("3.")


def test_the_commit_of_a_branch_is_found_from_a_folder_inside(tmp_path):
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text("abc123\n")
    (tmp_path / "notebooks").mkdir()

    assert git_commit(tmp_path / "notebooks") == "abc123"


def test_packed_and_detached_commits_are_found(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "packed-refs").write_text("# packed\ndef456 refs/heads/main\n")

    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert git_commit(tmp_path) == "def456"
    (tmp_path / ".git" / "HEAD").write_text("0123abcd\n")
    assert git_commit(tmp_path) == "0123abcd"


def test_outside_a_repository_there_is_no_commit(tmp_path):
    assert git_commit(tmp_path) == ""


def test_a_run_knows_what_it_was_made_with(store):
    with Recorder(store) as recorder:
        run = recorder.begin_run(name="a", num_ranks=1)

    assert json.loads(store.run(run).about)["python"] == about_here()["python"]


def test_a_store_of_version_1_is_brought_up_to_date(tmp_path):
    path = tmp_path / "old.db"
    RunStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE runs DROP COLUMN about")
        db.execute("PRAGMA user_version = 1")
    db.close()

    with RunStore(path) as store, Recorder(store) as recorder:
        run = recorder.begin_run(name="a", num_ranks=1)
        assert store.run(run).about != "{}"
