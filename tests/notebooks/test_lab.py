"""`make lab` gives notebooks that name the plain kernel the Workbench kernel."""

from jupyter_client.kernelspec import KernelSpecManager

from workbench.cli.lab import standing_in


def test_the_plain_kernel_s_name_means_the_workbench_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))

    monkeypatch.setenv("JUPYTER_PATH", str(standing_in()))

    spec = KernelSpecManager().get_kernel_spec("python3")
    assert spec.display_name == "Workbench"
    assert "--ext=workbench" in spec.argv
