"""`%%distributed` and `%distributed`: parse, call one public function, return its value."""

from collections.abc import Callable
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from workbench.notebook.arguments import CellArguments, parse_cell, parse_command
from workbench.notebook.cell_view import CellView
from workbench.protocol.spans import parse_spans
from workbench.session.connect import connect
from workbench.session.handle import CellHandle
from workbench.session.registry import OPEN_SESSIONS
from workbench.session.result import CellResult
from workbench.session.session import Session
from workbench.session.status import SessionStatus
from workbench.session.where import ranks_where


@magics_class
class DistributedMagics(Magics):
    """The magics of one notebook."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.default_on = False

    async def run_cell(self, line: str, body: str) -> CellResult | CellHandle | None:
        """Run a cell on ranks while the notebook stays awake.

        Raises:
            RankError: A rank failed or the cell was stopped.
            SessionError: No session is open.
        """
        arguments = parse_cell(line)
        session, ranks = self._where(arguments)
        if arguments.detach:
            return self._detached(session, ranks, arguments, body)
        result = await session.run_cell_async(
            body,
            ranks=ranks,
            timeout=arguments.timeout,
            view=CellView(ranks),
            number=self._number(),
        )
        return self._finish(result, arguments, body)

    @cell_magic
    def distributed(self, line: str, cell: str) -> CellResult | CellHandle | None:
        """Run the cell on every rank of the open session.

        In a notebook the cell is awaited, so that buttons and Stop work meanwhile;
        called as a plain magic (a terminal, `run_cell_magic`) it blocks.

        %%distributed [--ranks 0,2-3 | --where tp=0,pp=last] [--timeout SECONDS]
                      [--detach] [--out NAME] [--local]
        """
        arguments = parse_cell(line)
        session, ranks = self._where(arguments)
        if arguments.detach:
            return self._detached(session, ranks, arguments, cell)
        result = session.run_cell(
            cell,
            ranks=ranks,
            timeout=arguments.timeout,
            view=CellView(ranks),
            number=self._number(),
        )
        return self._finish(result, arguments, cell)

    def _where(self, arguments: CellArguments) -> tuple[Session, tuple[int, ...]]:
        """Return the session and the ranks that a cell is for."""
        session = OPEN_SESSIONS.newest()
        if arguments.where:
            return session, ranks_where(arguments.where, session.layout)
        return session, arguments.ranks or tuple(range(session.num_ranks))

    def _detached(
        self,
        session: Session,
        ranks: tuple[int, ...],
        arguments: CellArguments,
        body: str,
    ) -> CellHandle:
        handle = session.start_cell(body, ranks=ranks, timeout=arguments.timeout)
        self._keep(arguments.out, handle)
        return handle

    def _finish(
        self, result: CellResult, arguments: CellArguments, body: str
    ) -> CellResult | None:
        """Keep the result, run the cell here too, and show what there is to show."""
        assert self.shell is not None
        self._keep(arguments.out, result)
        if arguments.local:
            self.shell.ex(self.shell.transform_cell(body))
        return result if result.groups() and not arguments.out else None

    def _keep(self, name: str, value: CellResult | CellHandle) -> None:
        if name:
            assert self.shell is not None
            self.shell.user_ns[name] = value

    @line_magic("distributed")  # type: ignore[arg-type]
    def command(self, line: str) -> Session | SessionStatus | None:
        """Start, look at and end ranks.

        %distributed up [-n 2] [--devices cpu|cuda] [--address tls://...]
        %distributed status | down | interrupt | restart [ranks] | attach [session]
        %distributed default on|off
        """
        found = parse_command(line)
        commands: dict[str, Callable[[Any], Session | SessionStatus | None]] = {
            "up": _up,
            "status": _status,
            "down": _down,
            "interrupt": _interrupt,
            "restart": _restart,
            "attach": _attach,
            "default": self._default,
        }
        return commands[found.command](found)

    def _number(self) -> int:
        """Return this cell's number: what stands before it in `In` has been stored."""
        assert self.shell is not None
        return len(self.shell.user_ns.get("In", ())) - 1

    def _default(self, found: Any) -> None:
        if found.state == "on":
            OPEN_SESSIONS.newest()  # says how to start one where there is none
        self.default_on = found.state == "on"


def _up(found: Any) -> Session:
    return connect(
        found.address,
        num_ranks=found.ranks,
        backend="nccl" if found.devices == "cuda" else "gloo",
        interface=found.interface,
        oversubscribe=found.oversubscribe,
        lease_s=found.lease,
    )


def _status(found: Any) -> SessionStatus:
    del found
    return OPEN_SESSIONS.newest().status()


def _down(found: Any) -> None:
    del found
    OPEN_SESSIONS.newest().close()


def _interrupt(found: Any) -> None:
    del found
    OPEN_SESSIONS.newest().interrupt()


def _restart(found: Any) -> None:
    ranks = None if found.ranks is None else parse_spans(found.ranks)
    OPEN_SESSIONS.newest().restart(ranks)


def _attach(found: Any) -> Session:
    from workbench.session.attach import attach

    return attach(found.session)
