"""workbench doctor: check this machine and say what to fix."""

import sys

import click

from workbench.cluster.checks import check_machine


@click.command()
def command() -> None:
    """Check this machine; the exit code is 1 when there is something to fix."""
    findings = list(check_machine())
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        mark = "fix " if finding.fix else "ok  "
        click.echo(f"{mark} {finding.what:<{width}}  {finding.text}")
        if finding.fix:
            click.echo(f"{'':<{width + 7}}-> {finding.fix}")
    to_fix = sum(bool(finding.fix) for finding in findings)
    click.echo(f"{to_fix} to fix" if to_fix else "all is well")
    sys.exit(1 if to_fix else 0)
