import re

import pytest

import workbench as wb
from workbench.errors import StoreError
from workbench.notebook.dashboard import Dashboard
from workbench.notebook.runs import compare_run, export_run, run_table, write_report
from workbench.notebook.two_runs import two_runs


@pytest.fixture
def finished(session, run):
    for step in range(1, 6):
        session.step(step, 2)
    session.end()
    return run


def test_runs_are_listed_with_what_became_of_them(finished):
    (row,) = run_table().rows

    assert row["id"] == finished
    assert (row["status"], row["ranks"], row["layout"]) == ("finished", "2", "dp 2")
    assert float(row["loss"]) > 0


def test_names_in_the_table_are_text(finished):
    assert "&lt;b&gt;run&lt;/b&gt;" in run_table()._repr_html_()
    assert "<b>" not in run_table()._repr_html_()


def test_without_a_store_there_are_no_runs():
    assert len(run_table()) == 0
    assert "wb.launch(plan)" in str(run_table())


def test_a_run_is_compared_with_its_plan(finished, plan):
    comparison = compare_run(finished)

    assert comparison.run == finished
    assert comparison.line("memory.weights").measured == 4 * 2**20


def test_a_run_without_a_plan_cannot_be_compared(session):
    run = session.begin(name="bare", num_ranks=1)
    session.end()

    with pytest.raises(StoreError, match="without a plan"):
        compare_run(run)


def test_a_report_loads_nothing(finished, tmp_path):
    text = write_report(finished, tmp_path / "deep" / "r.html").read_text()

    assert not re.search(r'(src|href)="', text)
    assert "default-src 'none'" in text


def test_names_in_a_report_cannot_end_its_script(session, tmp_path):
    session.begin(name="</script><script>alert(1)</script>", num_ranks=1)
    session.end()

    text = write_report(None, tmp_path / "r.html").read_text()

    assert "<script>alert" not in text


def test_reports_go_beside_the_store(finished, tmp_path):
    assert write_report().parent == tmp_path / "home" / "reports"


def test_a_report_holds_predicted_beside_measured(finished, tmp_path):
    text = write_report(finished, tmp_path / "r.html").read_text()

    assert "Predicted beside measured" in text
    assert "dp = 2" in text


def test_the_dashboard_shows_the_newest_run_and_then_the_chosen_one(finished, session):
    newer = session.begin(name="newer", num_ranks=1)
    session.end()
    dashboard = Dashboard()
    try:
        assert dashboard._list.selected == newer
        assert dashboard._monitor.run == newer

        dashboard._list.selected = finished

        assert dashboard._monitor.run == finished
    finally:
        dashboard.close()


def test_a_dashboard_without_runs_says_so(tmp_path):
    dashboard = Dashboard()
    try:
        assert "no runs yet" in dashboard._list.message
    finally:
        dashboard.close()


def test_a_run_is_exported_as_tables(finished, tmp_path):
    written = export_run(None, tmp_path / "tables", "csv")

    assert {"run.json", "metric.csv", "collective.csv"} < {p.name for p in written}


def test_an_unknown_format_is_refused(finished, tmp_path):
    with pytest.raises(StoreError, match="one of csv, parquet"):
        export_run(None, tmp_path, "xlsx")


def test_two_runs_stand_side_by_side(finished, session):
    other = session.begin(name="<i>other</i>", num_ranks=1)
    session.step(1, 1)
    session.end()

    both = two_runs(finished, other)

    figures = {name: (first, second) for name, first, second in both.rows}
    assert figures["ranks"] == ("2", "1")
    assert figures["layout"] == ("dp 2", "-")
    assert figures["peak memory, planned"][1] == "-"
    assert both.curves[0][0] == [1, 2, 3, 4, 5]
    assert "&lt;i&gt;other" in both._repr_html_()


def test_a_run_is_compared_with_another_through_the_front_door(finished):
    assert "dp 2" in str(wb.compare(finished, finished))


def test_the_dashboard_compares_and_tells_what_a_run_was_made_of(finished, session):
    newer = session.begin(name="newer", num_ranks=1)
    session.end()
    dashboard = Dashboard()
    try:
        titles = [title for title, _ in dashboard._versus.sections]
        assert titles == ["Layout", "Made with"]
        assert [run for run, _ in dashboard._versus.others] == [finished]

        dashboard._versus.other = finished

        assert ["ranks", "1", "2"] in dashboard._versus.rows
        assert len(dashboard._versus.curves) == 2

        dashboard._list.selected = finished

        assert dashboard._versus.other == ""
        assert [title for title, _ in dashboard._versus.sections][1] == "Plan"
        assert [run for run, _ in dashboard._versus.others] == [newer]
    finally:
        dashboard.close()
