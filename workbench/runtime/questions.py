"""Questions that the host has asked ranks and that are not answered yet."""

import asyncio
from collections.abc import Callable
from typing import Any

from workbench.errors import SessionError
from workbench.protocol.orders import AskRank, RankAnswer


class Questions:
    """Matches answers to questions.

    Args:
        send: Sends a message to a rank.
    """

    def __init__(self, send: Callable[[int, Any], None]) -> None:
        self._send = send
        self._open: dict[tuple[int, int], asyncio.Future[RankAnswer]] = {}
        self._last = 0

    async def ask(
        self,
        ranks: tuple[int, ...],
        action: str,
        arguments: dict[str, Any],
        buffers: tuple[bytes, ...],
    ) -> tuple[RankAnswer, ...]:
        """Return ranks' answers, in order of `ranks`.

        Raises:
            SessionError: A rank is lost before it answers.
        """
        self._last += 1
        question = AskRank(
            request=self._last, action=action, arguments=arguments, buffers=buffers
        )
        loop = asyncio.get_running_loop()
        futures = []
        for rank in ranks:
            future: asyncio.Future[RankAnswer] = loop.create_future()
            self._open[rank, question.request] = future
            futures.append(future)
            self._send(rank, question)
        return tuple(await asyncio.gather(*futures))

    def answered(self, message: RankAnswer) -> None:
        """Take an answer."""
        future = self._open.pop((message.rank, message.request), None)
        if future is not None and not future.done():
            future.set_result(message)

    def lost(self, rank: int, cause: str) -> None:
        """Let those who wait for a rank know that it will not answer."""
        for key in [key for key in self._open if key[0] == rank]:
            future = self._open.pop(key)
            if not future.done():
                future.set_exception(SessionError(f"rank {rank} ended: {cause}"))
