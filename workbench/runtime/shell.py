"""The IPython shell of a rank: names persist, displays and tracebacks are handed over."""

import base64
import linecache
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.ultratb import AutoFormattedTB
from traitlets.config import Config

from workbench.protocol.messages import ErrorReport


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Something that a cell displays.

    Args:
        data: By MIME type, as JSON can carry it.
        metadata: By MIME type.
        display: The display id; "" for none.
        update: Replace what was shown under that id.
    """

    data: dict[str, Any]
    metadata: dict[str, Any]
    display: str
    update: bool


Show = Callable[[Shown], None]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class RankDisplayHook(DisplayHook):
    """Keeps the last expression for the reply instead of printing it."""

    def __call__(self, result: Any = None) -> None:
        """Take the value of a cell's last expression."""
        self.check_for_underscore()
        if result is None or self.quiet():
            return
        data, _ = self.compute_format_data(result)
        self.update_user_ns(result)
        shell: Any = self.shell
        shell.keep_last(result, printable(data))


class RankDisplayPublisher(DisplayPublisher):
    """Hands what is displayed to the control channel."""

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: str | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **kwargs: Any,
    ) -> None:
        """Show data by MIME type."""
        del source, kwargs
        shown = Shown(
            data=printable(data),
            metadata=metadata or {},
            display=(transient or {}).get("display_id", ""),
            update=update,
        )
        shell: Any = self.shell
        shell.show(shown)


class RankShell(InteractiveShell):
    """An IPython shell without a terminal: what it shows goes through callbacks."""

    displayhook_class = RankDisplayHook
    display_pub_class = RankDisplayPublisher

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.show: Show = _show_nothing
        self.traceback_wanted: Callable[[], bool] = _always
        self.forget()

    def forget(self) -> None:
        """Drop what the last cell left for its reply."""
        self.last_value: Any = None
        self.last_bundle: dict[str, Any] = {}
        self.last_error: ErrorReport | None = None
        self.last_exception: BaseException | None = None

    def keep_last(self, value: Any, bundle: dict[str, Any]) -> None:
        """Keep a last expression."""
        self.last_value, self.last_bundle = value, bundle

    def run(self, code: str, number: int) -> bool:
        """Run a cell; returns whether it went well. What it left is in `last_*`.

        Args:
            code: IPython syntax, top-level await included.
            number: The cell's number, the same on all ranks.
        """
        self.forget()
        self.execution_count = number
        outcome = self.run_cell(code, store_history=True)
        self.last_exception = outcome.error_before_exec or outcome.error_in_exec
        return bool(outcome.success)

    def enable_gui(self, gui: str | None = None) -> None:
        """Do nothing: figures are shown inline."""

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Format the current exception, unless the cell was stopped from outside.

        A stopped rank's frames are no news, and those inside torch take seconds to
        format; the cell's line is kept.
        """
        if self.traceback_wanted():
            super().showtraceback(*args, **kwargs)
            return
        error = sys.exc_info()[1]
        if error is not None:
            self.last_error = ErrorReport(
                name=type(error).__name__, message=str(error), source=cell_line(error)
            )

    def _showtraceback(
        self, etype: type, evalue: BaseException, stb: list[str]
    ) -> None:
        """Keep a traceback that IPython has formatted."""
        self.last_error = ErrorReport(
            name=etype.__name__,
            message=str(evalue),
            lines=tuple("\n".join(stb).split("\n")),
            source=cell_line(evalue),
        )


def make_shell(show: Show, traceback_wanted: Callable[[], bool]) -> RankShell:
    """Return this process's shell; `get_ipython()` finds it.

    Args:
        show: Takes what cells display.
        traceback_wanted: Asked when a cell has raised, before the error is formatted.
    """
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "neutral"
    config.InteractiveShell.banner1 = ""
    # Names that live here are what is asked for; jedi would read sources for them.
    config.Completer.use_jedi = False
    shell: RankShell = RankShell.instance(config=config)
    shell.show = show
    shell.traceback_wanted = traceback_wanted
    return shell


def warm() -> None:
    """Format one traceback: a first failing cell shall not wait for the imports."""
    formatter = AutoFormattedTB(mode="Context", theme_name="neutral")
    try:
        [].pop()
    except IndexError:
        formatter.text(*sys.exc_info())


def cell_line(error: BaseException) -> str:
    """Return the innermost line of a cell in an error's traceback, or ""."""
    found = ""
    traceback = error.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if name.startswith("<ipython-input-"):
            found = _line_text(name, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def cell_line_of(frame: Any) -> str:
    """Return the cell's line that a frame was called from, or ""."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<ipython-input-"):
            return _line_text(name, frame.f_lineno)
        frame = frame.f_back
    return ""


def _line_text(filename: str, number: int) -> str:
    return f"line {number}: {linecache.getline(filename, number).strip()}"


def printable(data: dict[str, Any]) -> dict[str, Any]:
    """Return MIME data that JSON can carry: bytes become base64 text."""
    return {
        mime: base64.b64encode(item).decode() if isinstance(item, bytes) else item
        for mime, item in data.items()
    }


def plain_text(text: str) -> str:
    """Return text without terminal colours."""
    return _ANSI.sub("", text)


def _always() -> bool:
    """Say yes."""
    return True


def _show_nothing(shown: Shown) -> None:
    """Show nothing."""
