"""One thread that answers: concurrent questions together, long batches piece by piece.

The event loop stays free, since all numpy work and all waiting for Redis is done in the thread.
While it answers, questions gather, and go together in the next call, where each costs far less than
alone. A batch goes in pieces and queues up anew with each, so it does not hold up a single question
for longer than a piece takes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from stream_dedup.query import Answer, Question

#: Questions answered in one call, and bytes that the texts of several have together: some
#: milliseconds. One text alone, as long and as hostile as may be, takes up to a second.
PIECE, PIECE_BYTES = 32, 1 << 18

Ask = Callable[[Sequence[Question]], list[Answer]]


class Busy(Exception):  # noqa: N818 - a state of things
    """More questions wait than may."""


class _Piece(NamedTuple):
    questions: Sequence[Question]
    bytes: int
    answers: asyncio.Future[list[Answer]]

    def fits(self, count: int, size: int) -> bool:
        """Return whether it may go together with so many others, of so many bytes."""
        return not count or (
            count + len(self.questions) <= PIECE and size + self.bytes <= PIECE_BYTES
        )


class Lane:
    """Answers questions of many requests in one thread."""

    def __init__(self, ask: Ask, most: int, most_bytes: int) -> None:
        """Let questions be answered.

        Args:
            ask: answers them, in the thread.
            most: questions that may wait; further ones are refused.
            most_bytes: bytes that their texts may have together, likewise.
        """
        self._ask = ask
        self._most, self._most_bytes = most, most_bytes
        self._waiting, self._waiting_bytes = 0, 0
        self._pieces: deque[_Piece] = deque()
        self._thread = ThreadPoolExecutor(1, "look-up")
        self._task: asyncio.Task[None] | None = None

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer the questions of one request.

        Raises:
            Busy: too many wait already.
            ServiceError: the index is out of reach.
        """
        sizes = [_size(question) for question in questions]
        count, size = self._waiting + len(questions), self._waiting_bytes + sum(sizes)
        if self._waiting and (count > self._most or size > self._most_bytes):
            raise Busy
        self._waiting, self._waiting_bytes = count, size
        try:
            answers: list[Answer] = []
            for start, end in _cuts(sizes):
                answers += await self._answer(questions[start:end], sum(sizes[start:end]))
            return answers
        finally:
            self._waiting -= len(questions)
            self._waiting_bytes -= sum(sizes)

    async def close(self) -> None:
        """Finish what is being answered, and end the thread."""
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    def _answer(self, questions: Sequence[Question], size: int) -> asyncio.Future[list[Answer]]:
        loop = asyncio.get_running_loop()
        piece = _Piece(questions, size, loop.create_future())
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
        count = size = 0
        while self._pieces and self._pieces[0].fits(count, size):
            piece = self._pieces.popleft()
            if not piece.answers.done():
                taken.append(piece)
                count, size = count + len(piece.questions), size + piece.bytes
        return taken


def _size(question: Question) -> int:
    return len(question.document.text.encode("utf-8", "surrogatepass"))


def _cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where pieces of questions with texts of these sizes begin and end."""
    start = size = 0
    for place, own in enumerate(sizes):
        if place > start and (place - start == PIECE or size + own > PIECE_BYTES):
            yield start, place
            start, size = place, 0
        size += own
    if sizes:
        yield start, len(sizes)
