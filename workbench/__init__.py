"""Workbench: plan, launch, work on and watch distributed training from a notebook.

This front door is imported by no module inside. Each function imports what it needs
when it is called, so that `import workbench as wb` and Tab stay instant.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

# The rooms `model` and `hardware` are loaded first, so that a later import of one does
# not put the package in the place of the function of the same name below.
from workbench.errors import WorkbenchError
from workbench.hardware import ClusterSpec
from workbench.layout import Layout
from workbench.model import ModelSpec

if TYPE_CHECKING:
    from workbench.collectives import Ranks
    from workbench.notebook.builder import LayoutBuilder as _LayoutBuilder
    from workbench.notebook.follow import HasFeed
    from workbench.notebook.monitor import LiveMonitor
    from workbench.notebook.report import Report
    from workbench.notebook.runs import RunTable
    from workbench.notebook.two_runs import TwoRuns
    from workbench.planner import Plan
    from workbench.planner.compare import Comparison
    from workbench.planner.search import SearchResult
    from workbench.session.session import Session
    from workbench.strategies.parallelize import Parallel

__all__ = [
    "Layout",
    "LayoutBuilder",
    "WorkbenchError",
    "attach",
    "compare",
    "connect",
    "export",
    "hardware",
    "launch",
    "load_layout",
    "model",
    "monitor",
    "parallelize",
    "plan",
    "report",
    "runs",
    "search",
    "trace",
]
__version__ = "0.1.0"


def model(name: str, **overrides: float | bool) -> ModelSpec:
    """Return a named model as numbers to plan with and to build a net from.

    Args:
        name: "gpt" or "llama" for a small free shape, or a published size, e.g.
            "gpt2-xl", "llama3-8b".
        **overrides: hidden, num_layers, num_heads, num_kv_heads, head_dim, ffn,
            vocab_size, tokens_per_sample, tied, rope_theta.

    Raises:
        ModelError: An unknown name or number, or shapes that do not divide.

    Example:
        `wb.model("gpt", hidden=128, num_layers=4, num_heads=4, vocab_size=256)`
    """
    from workbench.model.presets import model as preset

    return preset(name, **overrides)


def hardware(name: str = "cpu", *, num_nodes: int = 1) -> ClusterSpec:
    """Return a cluster as numbers: "cpu" is this machine, others are nodes of 8 GPUs.

    Raises:
        HardwareError: An unknown name, or less than one node.

    Example:
        `wb.hardware("h100", num_nodes=8)`
    """
    from workbench.hardware.presets import hardware as preset

    return preset(name, num_nodes=num_nodes)


def load_layout(path: str | Path) -> Layout:
    """Read a layout from a TOML file, as `Layout.to_toml()` writes it.

    Raises:
        LayoutError: No such file, a key that no layout has, or degrees that contradict.

    Example:
        `wb.load_layout("layout.toml")`
    """
    from workbench.layout import load_layout as load

    return load(path)


def plan(
    model: ModelSpec,
    hardware: ClusterSpec,
    layout: Layout,
    *,
    global_batch: int,
    profile: str = "workbench",
) -> "Plan":
    """Judge a layout: memory per rank, traffic, step time, whether it fits and why not.

    Args:
        model: What is trained.
        hardware: On what.
        layout: Who does what.
        global_batch: Samples per step over all ranks.
        profile: The framework whose facts hold: "workbench", "fsdp2", "megatron",
            "deepspeed".

    Raises:
        LayoutError: Degrees that the model, batch or cluster do not divide by.
        PlanError: An unknown profile.

    Example:
        `wb.plan(wb.model("gpt"), wb.hardware(), wb.Layout(dp=2), global_batch=32)`
    """
    from workbench.planner import plan as judge

    return judge(model, hardware, layout, global_batch=global_batch, profile=profile)


def search(
    model: ModelSpec,
    hardware: ClusterSpec,
    *,
    global_batch: int,
    objective: Literal["time", "memory"] = "time",
    profile: str = "megatron-core",
    num_ranks: int | None = None,
    top: int = 5,
) -> "SearchResult":
    """Judge every layout of the ranks and return the best that fit, and why not others.

    Args:
        model: What is trained.
        hardware: On what.
        global_batch: Samples per step over all ranks.
        objective: What is smallest first.
        profile: The framework whose facts hold.
        num_ranks: Ranks to use; all devices where None.
        top: How many plans to return.

    Raises:
        PlanError: No layout divides, or none fits, with the nearest one.

    Example:
        `wb.search(wb.model("llama3-70b"), wb.hardware("h100", num_nodes=8), global_batch=64)`
    """
    from workbench.planner.search import search as look

    return look(
        model,
        hardware,
        global_batch=global_batch,
        objective=objective,
        profile=profile,
        num_ranks=num_ranks,
        top=top,
    )


def trace(
    module: Any, example_inputs: tuple[Any, ...], *, name: str | None = None
) -> ModelSpec:
    """Describe any `nn.Module` as a model to plan with, without allocating it.

    Args:
        module: Any module; built under `torch.device("meta")` it costs no memory.
        example_inputs: Positional inputs; dim 0 of each is the batch.
        name: What to call the model; its class name otherwise.

    Raises:
        ModelError: The forward fails on these inputs or branches on tensor values.

    Example:
        `wb.trace(net, (torch.zeros(1, 2048, dtype=torch.int64),))`
    """
    from workbench.tracing import trace

    return trace(module, example_inputs, name=name)


def parallelize(net: Any, ranks: "Ranks", **options: Any) -> "Parallel":
    """Run a module of your own over the layout of these ranks; loads torch.

    Inside a cell on the ranks, after `wb.launch` or `session.begin_run`. See
    `workbench.strategies.parallelize` for what runs and for the options.

    Args:
        net: Any module, with equal values on all ranks; changed in place.
        ranks: The name `ranks` of a rank's namespace.
        options: `example`, `owners`, `rules`, `targets_first`.

    Raises:
        LayoutError: Axes that do not run together, or an option that one needs.

    Example:
        >>> parallel = wb.parallelize(net, ranks, example=(x,))  # doctest: +SKIP
    """
    from workbench.strategies.parallelize import parallelize

    return parallelize(net, ranks, **options)


def LayoutBuilder(  # noqa: N802 - it makes one, and loads widgets only then
    model: ModelSpec,
    hardware: ClusterSpec,
    *,
    global_batch: int | None = None,
    layout: Layout | None = None,
) -> "_LayoutBuilder":
    """Show a cluster in which a layout is built by hand; every step is planned at once.

    Args:
        model: What is trained.
        hardware: On what.
        global_batch: Samples per step; 8 for each device by default.
        layout: What to start from; all devices on fsdp by default.

    Raises:
        LayoutError: A layout that the model or the cluster cannot hold.

    Example:
        `builder = wb.LayoutBuilder(wb.model("llama3-8b"), wb.hardware("h100"))`, then
        `builder.layout` and `builder.plan` follow what you do in the picture.
    """
    from workbench.notebook.builder import LayoutBuilder

    return LayoutBuilder(model, hardware, global_batch=global_batch, layout=layout)


def monitor(target: "HasFeed | str | None" = None) -> "LiveMonitor":
    """Show a run live: loss, tokens per second, memory and traffic beside the plan.

    It goes on while cells run, and shows finished runs as they were.

    Args:
        target: A session, a run's id (see `wb.runs()`), or None for the newest run.

    Raises:
        StoreError: No such run.

    Example:
        `wb.monitor(session)`
    """
    from workbench.notebook.monitor import LiveMonitor

    return LiveMonitor(target)


def connect(
    target: Any = None, *, num_ranks: int | None = None, **options: Any
) -> "Session":
    """Start ranks, here or on a Dask cluster, and return the session that holds them.

    Args:
        target: None for this machine; "tls://host:port" or any Dask cluster object.
        num_ranks: None for one per GPU, or two on CPUs.
        **options: backend, security, environment, memory_bytes, interface,
            oversubscribe, lease_s; see `workbench.session.connect.connect`.

    Raises:
        ClusterError: No scheduler there, no workers, or too few cores or devices.

    Example:
        `session = wb.connect(num_ranks=2)`
    """
    from workbench.session.connect import connect as open_session

    return open_session(target, num_ranks=num_ranks, **options)


def launch(plan: "Plan", *, name: str, **options: Any) -> "Session":
    """Start as many ranks as the plan has, and begin a run with it.

    Args:
        plan: What to run.
        name: Of the run, as `wb.runs()` lists it.
        **options: As `connect` takes them.

    Raises:
        ClusterError: There are too few cores or devices for the plan's layout.

    Example:
        `session = wb.launch(plan, name="quickstart")`
    """
    from workbench.session.connect import launch as launch_session

    return launch_session(plan, name=name, **options)


def attach(session: str | None = None) -> "Session":
    """Join a running session of this user.

    Args:
        session: Its id; None for $WORKBENCH_SESSION, else the newest.

    Raises:
        SessionError: None runs.

    Example:
        `session = wb.attach()`
    """
    from workbench.session.attach import attach as join

    return join(session)


def runs() -> "RunTable":
    """List the runs of this machine's store, newest first.

    Example:
        `wb.runs()[0].id`
    """
    from workbench.notebook.runs import run_table

    return run_table()


def compare(run: str | None = None, other: str | None = None) -> "Comparison | TwoRuns":
    """Put what a run was planned as beside what it did, or beside another run.

    Args:
        run: Its id; the newest run by default.
        other: The id of a second run: then the two are compared.

    Raises:
        StoreError: No such run, or one that was started without a plan.

    Example:
        `wb.compare(session.run)`
    """
    from workbench.notebook.runs import compare_run
    from workbench.notebook.two_runs import two_runs

    return compare_run(run) if other is None else two_runs(run, other)


def export(
    run: str | None = None, folder: str | Path = "run", *, file_format: str = "csv"
) -> list[Path]:
    """Write a run as tables, one file for each kind of event, and return their paths.

    Args:
        run: Its id; the newest run by default.
        folder: Made if missing; files of the same names in it are replaced.
        file_format: "csv", or "parquet" where pyarrow is installed.

    Raises:
        StoreError: No such run or format, or a folder that cannot be written.

    Example:
        `wb.export(session.run, "quickstart")`
    """
    from workbench.notebook.runs import export_run

    return export_run(run, folder, file_format)


def report(run: str | None = None, path: str | Path | None = None) -> "Report":
    """Write a run as one HTML file that opens anywhere, offline, and sum it up.

    The result shows itself as a table, and is a path to the file.

    Args:
        run: Its id; the newest run by default.
        path: The file to write; by default in the folder `reports` beside the store.

    Raises:
        StoreError: No such run.

    Example:
        `wb.report(session.run, "quickstart.html")`
    """
    from workbench.notebook.report import make_report

    return make_report(run, path)


def load_ipython_extension(shell: Any) -> None:
    """Register `%%distributed` and `%distributed`: what `%load_ext workbench` calls."""
    from workbench.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again: what `%unload_ext workbench` calls."""
    from workbench.notebook.extension import unload

    unload(shell)
