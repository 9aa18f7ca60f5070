"""Everything goes to the log; the notebook gets head and tail, and is told."""

from workbench.runtime.output import TAIL_LINES, Gate, Log


def test_short_output_passes_whole():
    gate = Gate(head_bytes=100)

    assert gate.admit("hello\n") == "hello\n"
    assert gate.close("log") == ""


def test_long_output_is_cut_at_a_line_and_announced_with_the_tail():
    gate = Gate(head_bytes=50)
    lines = [f"line {number}\n" for number in range(1000)]

    head = gate.admit("".join(lines))
    rest = gate.close("/the/log")

    shown = len(head.splitlines())
    assert head == "".join(lines[:shown])
    assert f"... {1000 - shown - TAIL_LINES:,} lines left out here" in rest
    assert "/the/log" in rest
    assert rest.splitlines()[1:] == [line.strip() for line in lines[-TAIL_LINES:]]


def test_the_log_marks_every_line_with_its_source(tmp_path):
    log = Log(tmp_path / "out.log")
    log.write("cell", 0, "stdout", "a\nb")
    log.write("cell", 1, "stderr", "c\n")
    log.write("cell", 0, "stdout", "!\n")
    log.close()

    assert log.path.read_text().splitlines() == [
        "cell rank 0 stdout | a",
        "cell rank 1 stderr | c",
        "cell rank 0 stdout | b!",
    ]


def test_the_log_is_private(tmp_path):
    log = Log(tmp_path / "out.log")
    log.close()

    assert log.path.stat().st_mode & 0o777 == 0o600
