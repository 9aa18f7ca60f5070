"""What a notebook can ask a session host, one function per action."""

from collections.abc import Awaitable, Callable
from typing import Any

from workbench.errors import SessionError, WorkbenchError
from workbench.protocol.messages import Answer, Ask
from workbench.protocol.orders import RankAnswer
from workbench.runtime.engine import Engine
from workbench.telemetry.recorder import Recorder

Found = tuple[dict[str, Any], tuple[bytes, ...]]


class Requests:
    """Answers questions about a session with an engine and a recorder."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._engine = engine
        self._recorder = recorder
        self._run = ""
        self._actions: dict[str, Callable[[Ask], Awaitable[Found]]] = {
            "status": self._status,
            "history": self._history,
            "put": self._put,
            "get": self._on_ranks,
            "where": self._on_ranks,
            "complete": self._on_ranks,
            "inspect": self._on_ranks,
            "begin_run": self._begin_run,
            "end_run": self._end_run,
            "restart": self._restart,
        }

    async def answer(self, question: Ask) -> Answer:
        """Return the answer; an error is part of it."""
        try:
            if question.action not in self._actions:
                raise SessionError(f"nobody answers {question.action!r} here")
            result, buffers = await self._actions[question.action](question)
        except WorkbenchError as error:
            return Answer(
                request=question.request,
                error=type(error).__name__,
                message=error.message,
                hint=error.hint or "",
            )
        return Answer(request=question.request, result=result, buffers=buffers)

    def end_open_run(self, status: str) -> None:
        """End the current run, if there is one, without asking the ranks."""
        run, self._run = self._run, ""
        if run:
            self._recorder.end_run(run, status=status)

    async def _status(self, question: Ask) -> Found:
        del question
        current = self._engine.cells.current
        return {
            "phase": self._engine.phase,
            "generation": self._engine.generation,
            "ranks": [vars(info) for info in self._engine.rank_infos()],
            "cell": current.request.cell if current is not None else "",
            "code": current.request.code if current is not None else "",
            "run": self._run,
            "layout": self._engine.layout_toml,
        }, ()

    async def _history(self, question: Ask) -> Found:
        """Return the cells that ran to their end, in order, and what they ran under."""
        del question
        return {
            "cells": [
                {"code": request.code, "ranks": request.ranks}
                for request in self._engine.cells.history
            ],
            "layout": self._engine.layout_toml,
            "plan_json": self._engine.plan_json,
        }, ()

    async def _put(self, question: Ask) -> Found:
        answers = await self._ask(question)
        _raise_first(answers)
        return {}, ()

    async def _on_ranks(self, question: Ask) -> Found:
        answers = await self._ask(question)
        _raise_first(answers)
        buffers: list[bytes] = []
        rows = []
        for answer in answers:
            first = len(buffers)
            buffers.extend(answer.buffers)
            parts = list(range(first, len(buffers)))
            rows.append({"rank": answer.rank, "parts": parts, **answer.result})
        return {"ranks": rows}, tuple(buffers)

    async def _ask(self, question: Ask) -> tuple[RankAnswer, ...]:
        arguments = dict(question.arguments)
        asked = arguments.pop("ranks", None)
        everywhere = tuple(range(self._engine.num_ranks))
        ranks = everywhere if asked is None else tuple(asked)
        if not ranks or not set(ranks) <= set(everywhere):
            raise SessionError(
                f"ranks {list(ranks)} were asked for, there are {len(everywhere)}",
                hint=f"choose from 0 to {len(everywhere) - 1}",
            )
        return await self._engine.ask(
            ranks, question.action, arguments, question.buffers
        )

    async def _begin_run(self, question: Ask) -> Found:
        self.end_open_run("finished")
        asked = question.arguments
        run = self._recorder.begin_run(
            name=asked["name"],
            num_ranks=self._engine.num_ranks,
            layout_toml=asked["layout_toml"],
            plan_json=asked["plan_json"],
        )
        try:
            await self._engine.follow_run(run, asked["plan_json"], asked["layout_toml"])
        except WorkbenchError:
            self._recorder.end_run(run, status="failed")
            raise
        self._run = run
        return {"run": run}, ()

    async def _end_run(self, question: Ask) -> Found:
        if not self._run:
            raise SessionError(
                "no run is open", hint="session.begin_run(plan) opens one"
            )
        await self._engine.follow_run("", "", "")
        run = self._run
        self.end_open_run(question.arguments.get("status", "finished"))
        return {"run": run}, ()

    async def _restart(self, question: Ask) -> Found:
        asked = question.arguments.get("ranks")
        everywhere = tuple(range(self._engine.num_ranks))
        self._engine.restart(everywhere if asked is None else tuple(asked))
        return {}, ()


def _raise_first(answers: tuple[RankAnswer, ...]) -> None:
    for answer in answers:
        if answer.error:
            raise SessionError(f"rank {answer.rank}: {answer.error}: {answer.message}")
