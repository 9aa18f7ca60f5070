"""The workbench command: one file per sub-command, loaded when it is called."""

import importlib

import click

from workbench.errors import WorkbenchError

#: Sub-commands and what they are for; `workbench.cli.<name>` holds `command`.
COMMANDS = {
    "plan": "predict memory, traffic and step time of a layout",
    "run": "run a notebook headless and print what happens",
    "lab": "open JupyterLab on the quickstart",
    "dashboard": "serve the team dashboard",
    "doctor": "check this machine and say what to fix",
}


class _Commands(click.Group):
    """A group that imports a command's module only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order that a person meets them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"workbench.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; show our own errors without a traceback."""
        try:
            return super().invoke(ctx)
        except WorkbenchError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="workbench-distributed")
def main() -> None:
    """Plan, launch, work on and watch distributed training."""
