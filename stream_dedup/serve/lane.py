"""One thread that answers: concurrent questions together, long batches piece by piece.

The event loop stays free, since all numpy work and all waiting for Redis is done in the thread.
While it answers, questions gather, and go together in the next call, where each costs far less than
alone. A batch goes in pieces and queues up anew with each, so it does not hold up a single question
for longer than a piece takes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from stream_dedup.query import Answer, Question

#: Questions answered in one call; a few milliseconds.
PIECE = 32

Ask = Callable[[Sequence[Question]], list[Answer]]


class Busy(Exception):  # noqa: N818 - a state of things
    """More questions wait than may."""


class _Piece(NamedTuple):
    questions: Sequence[Question]
    answers: asyncio.Future[list[Answer]]


class Lane:
    """Answers questions of many requests in one thread."""

    def __init__(self, ask: Ask, most: int) -> None:
        """Answer by ``ask``; let ``most`` questions wait, and refuse further ones."""
        self._ask = ask
        self._most = most
        self._waiting = 0
        self._pieces: deque[_Piece] = deque()
        self._thread = ThreadPoolExecutor(1, "look-up")
        self._task: asyncio.Task[None] | None = None

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer the questions of one request.

        Raises:
            Busy: too many wait already.
            ServiceError: the index is out of reach.
        """
        if self._waiting and self._waiting + len(questions) > self._most:
            raise Busy
        self._waiting += len(questions)
        try:
            answers: list[Answer] = []
            for start in range(0, len(questions), PIECE):
                answers += await self._answer(questions[start : start + PIECE])
            return answers
        finally:
            self._waiting -= len(questions)

    async def close(self) -> None:
        """Finish what is being answered, and end the thread."""
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def _answer(self, questions: Sequence[Question]) -> asyncio.Future[list[Answer]]:
        loop = asyncio.get_running_loop()
        piece = _Piece(questions, loop.create_future())
        self._pieces.append(piece)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return piece.answers

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while pieces := self._take():
            questions = [question for piece in pieces for question in piece.questions]
            call = loop.run_in_executor(self._thread, self._ask, questions)
            await asyncio.wait([call])
            error = call.exception()
            answers = iter([] if error else call.result())
            for piece in pieces:
                own = list(islice(answers, len(piece.questions)))
                if piece.answers.done():  # who asked has gone meanwhile
                    continue
                if error:
                    piece.answers.set_exception(error)
                else:
                    piece.answers.set_result(own)

    def _take(self) -> list[_Piece]:
        """Take waiting pieces, as many as make one call."""
        taken: list[_Piece] = []
        count = 0
        while self._pieces and (not taken or count + len(self._pieces[0].questions) <= PIECE):
            piece = self._pieces.popleft()
            if not piece.answers.done():
                taken.append(piece)
                count += len(piece.questions)
        return taken
