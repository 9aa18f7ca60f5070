"""A rank's answers to questions that are not cells."""

import sys
import threading
from collections.abc import Callable
from typing import Any

from workbench.errors import SessionError, WorkbenchError
from workbench.protocol.orders import AskRank, RankAnswer
from workbench.runtime.membership import Membership
from workbench.runtime.names import Names
from workbench.runtime.shell import RankShell, cell_line_of, plain_text
from workbench.runtime.tensors import from_bytes, to_bytes

Found = tuple[dict[str, Any], tuple[bytes, ...]]


class Answers:
    """Puts, gets, completes; in the main thread, or beside a running cell."""

    def __init__(self, shell: RankShell, names: Names, members: Membership) -> None:
        self._shell = shell
        self._names = names
        self._members = members
        self._actions: dict[str, Callable[[AskRank], Found]] = {
            "put": self._put,
            "get": self._get,
            "complete": self._complete,
            "inspect": self._inspect,
            "where": self._where,
            "follow_run": self._follow_run,
        }

    def answer(self, question: AskRank) -> RankAnswer:
        """Return the answer; an error is part of it."""
        try:
            result, buffers = self._actions[question.action](question)
        except Exception as error:  # the asker gets it, whatever it is
            return _refuse(self._rank, question, error)
        return RankAnswer(
            rank=self._rank, request=question.request, result=result, buffers=buffers
        )

    def answer_while_busy(self, question: AskRank) -> RankAnswer:
        """Answer from the control thread, what does not need the group."""
        if question.action == "follow_run":
            error = SessionError(
                "a run cannot begin or end while a cell runs",
                hint="wait for the cell, or stop it with session.interrupt()",
            )
            return _refuse(self._rank, question, error)
        return self.answer(question)

    @property
    def _rank(self) -> int:
        return self._members.rank

    def _put(self, question: AskRank) -> Found:
        self._names.namespace.update(from_bytes(question.buffers))
        return {}, ()

    def _get(self, question: AskRank) -> Found:
        value = eval(question.arguments["name"], self._names.namespace)  # noqa: S307
        return {}, to_bytes(value)

    def _complete(self, question: AskRank) -> Found:
        line, cursor = question.arguments["line"], question.arguments["cursor"]
        text, matches = self._shell.complete(None, line, cursor)
        return {"text": text, "matches": list(matches)}, ()

    def _inspect(self, question: AskRank) -> Found:
        name, detail = question.arguments["name"], question.arguments["detail"]
        bundle = self._shell.object_inspect_mime(name, detail_level=detail)
        return {"text": plain_text(bundle["text/plain"])}, ()

    def _where(self, question: AskRank) -> Found:
        """Return the open calls and the cell's line; from whichever thread."""
        del question
        main = threading.main_thread().ident
        frame = sys._current_frames().get(main or 0)
        waiting = [vars(call) for call in self._members.waiting()]
        return {"waiting": waiting, "line": cell_line_of(frame)}, ()

    def _follow_run(self, question: AskRank) -> Found:
        self._names.follow(question.arguments["run"], question.arguments["plan_json"])
        self._names.regroup()
        return {}, ()


def _refuse(rank: int, question: AskRank, error: Exception) -> RankAnswer:
    text = error.message if isinstance(error, WorkbenchError) else str(error)
    return RankAnswer(
        rank=rank, request=question.request, error=type(error).__name__, message=text
    )
