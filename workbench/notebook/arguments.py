"""The arguments of the magics, parsed with IPython's own parser."""

import argparse
import shlex
from dataclasses import dataclass

from IPython.core.magic_arguments import MagicArgumentParser

from workbench.protocol.spans import parse_spans

#: Flags of a cell, for completion.
CELL_FLAGS = ("--ranks", "--where", "--timeout", "--detach", "--out", "--local")


@dataclass(frozen=True, kw_only=True)
class CellArguments:
    """What stands behind `%%distributed`.

    Args:
        ranks: Where to run; None for everywhere.
        where: Where to run, by the layout's axes; "" for no condition.
        timeout: Seconds; None for no limit.
        detach: Return a handle at once.
        out: Name that takes the result (or handle) in the notebook; "" for none.
        local: Run it in the notebook's own process too, after the ranks.
    """

    ranks: tuple[int, ...] | None
    where: str
    timeout: float | None
    detach: bool
    out: str
    local: bool


def parse_cell(line: str) -> CellArguments:
    """Return the arguments of a cell.

    Raises:
        UsageError: An unknown flag.
        SessionError: Ranks that cannot be read.
    """
    parser = MagicArgumentParser(prog="%%distributed", add_help=False)
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--ranks", help='where to run, e.g. "0,2-3"')
    places.add_argument("--where", default="", help='by axis, e.g. "tp=0,pp=last"')
    parser.add_argument(
        "--timeout", type=float, help="stop the cell after so many seconds"
    )
    parser.add_argument("--detach", action="store_true", help="return a handle at once")
    parser.add_argument("--out", default="", help="name that takes the result here")
    parser.add_argument(
        "--local", action="store_true", help="run it here too, afterwards"
    )
    found = parser.parse_args(shlex.split(line))
    ranks = None if found.ranks is None else parse_spans(found.ranks)
    return CellArguments(**{**vars(found), "ranks": ranks})


def parse_command(line: str) -> argparse.Namespace:
    """Return the arguments of `%distributed`: `command` and what belongs to it.

    Raises:
        UsageError: An unknown command or flag.
    """
    parser = MagicArgumentParser(prog="%distributed", add_help=False)
    commands = parser.add_subparsers(
        dest="command", required=True, parser_class=MagicArgumentParser
    )
    up = commands.add_parser("up", help="start ranks", add_help=False)
    up.add_argument("-n", "--ranks", type=int, help="how many; default: one per device")
    up.add_argument("--devices", choices=("cpu", "cuda"), default="cpu")
    up.add_argument("--address", help="a running Dask scheduler")
    up.add_argument("--interface", default="", help="network interface of the group")
    up.add_argument(
        "--lease", type=float, default=0.0, help="seconds to outlive the notebook"
    )
    up.add_argument(
        "--oversubscribe", action="store_true", help="more ranks than cores"
    )
    commands.add_parser("status", help="what each rank does", add_help=False)
    commands.add_parser("down", help="end ranks and cluster", add_help=False)
    commands.add_parser("interrupt", help="stop the running cell", add_help=False)
    restart = commands.add_parser("restart", help="fresh processes", add_help=False)
    restart.add_argument("ranks", nargs="?", help="which; default: all")
    attach = commands.add_parser(
        "attach", help="join a running session", add_help=False
    )
    attach.add_argument("session", nargs="?", help="its id; default: the newest")
    default = commands.add_parser(
        "default", help="plain cells go to the ranks", add_help=False
    )
    default.add_argument("state", choices=("on", "off"))
    return parser.parse_args(shlex.split(line))
