"""The doctor looks at everything that stops a person, and says the way out."""

import subprocess
import sys

from workbench.cluster import checks


def test_every_part_is_looked_at():
    found = {finding.what for finding in checks.check_machine()}

    assert {"python", "torch", "cores", "memory", "GPUs", "loopback", "gloo"} <= found


def test_a_missing_package_comes_with_its_command(monkeypatch):
    monkeypatch.setattr(checks, "_PACKAGES", ("no-such-package-here",))

    (finding,) = checks._packages()

    assert finding.fix == "pip install no-such-package-here"


def test_a_long_folder_for_sockets_is_found(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/" + "x" * 80)

    assert checks._temporary_folder().fix == "set TMPDIR to a shorter path"


def test_the_command_prints_one_line_each_and_loads_no_torch():
    code = (
        "import sys; from workbench.cli import main\n"
        "try: main(['doctor'])\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "False"
    assert " loopback " in done.stdout
