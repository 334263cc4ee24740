"""The stages around the index in several processes; the index stays in this one.

Each worker process has a pipe for short messages and shared memory for batches. A batch is put into
a free slot and the worker prepares it; its fingerprints come back in the same slot and are claimed
here, in order; the answers go out in it once more and the annotated lines come back. So a batch
keeps its slot, and its lines stay with one worker, until it is written: the number of slots bounds
the batches on their way.

This process is one of the jobs: when there is nothing to claim, and the workers have all that they
can hold, it carries out a batch itself instead of waiting for them. So it does until the first
worker has begun, which takes a good part of a second, and so no core is left to wait for another.

Neither side can wait for the other for ever. What this process sends is a few bytes, for which the
pipe always has room. A worker that ends closes its end of the pipe, which is seen here; when this
process ends, however it does, its workers see the same and end.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum, auto
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from types import TracebackType
from typing import Any, NamedTuple, Self

from stream_dedup.errors import StreamDedupError, WorkerError
from stream_dedup.stream.collector import calm
from stream_dedup.stream.embedded import Batch, Claim
from stream_dedup.stream.files import CHUNK_LINES
from stream_dedup.stream.slots import Slots, uncopied
from stream_dedup.stream.stages import Annotated, Claimed, LineStages, Pending, Prepared

#: Batches that a worker may have on their way: one in work, others waiting here or there.
DEPTH = 4
#: Batches that this process carries out itself and that wait for others before them.
OWN_DEPTH = 2
#: Room for a batch: its lines, unless one is very long (such a batch is carried out here), or the
#: answers, which name originals by ids of at most 1,024 characters.
_SLOT_BYTES = 8 << 20

#: Seconds that a process whose pipe is closed has to say how it ended.
_END_SECONDS = 2.0

Make = Callable[[], LineStages]
Answer = Prepared | Annotated | StreamDedupError


class _Stage(Enum):
    """The two things that a worker does with a batch."""

    PREPARE = auto()
    FINISH = auto()


class _Message(NamedTuple):
    """A message to a worker or from it.

    Attributes:
        slot: whose batch it is about.
        stage: what is to be done, or has been done, with it.
        sizes: for ``Slots.get``, or None when ``value`` has what the slot has no room for.
    """

    slot: int
    stage: _Stage
    sizes: list[int] | None
    value: Any = None


class _Job:
    """A batch on its way.

    Attributes:
        worker: whose slot it holds; None if it is carried out in this process from the beginning.
        slot: the slot.
        answer: what came of it last; None while the worker has it.
        pending: what ``finish`` will want, if the batch is carried out in this process.
    """

    def __init__(self, worker: _Worker | None = None, slot: int = -1) -> None:
        self.worker = worker
        self.slot = slot
        self.answer: Answer | None = None
        self.pending: Pending | None = None

    def prepare_here(self, batch: Batch, here: LineStages) -> None:
        """Prepare the batch in this process."""
        try:
            self.answer, self.pending = here.prepare(batch)
        except StreamDedupError as error:
            self.answer = error


class JobPool:
    """Carries out the stages around the index in worker processes."""

    def __init__(self, jobs: int, make: Make, preload: Sequence[str] = ()) -> None:
        """Start worker processes.

        Args:
            jobs: how many processes, at least 2; this one is the first.
            make: makes the stages, in each process; must be picklable.
            preload: modules that the program is made of, to be imported once, not by each worker.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, *preload])
        self._here = make()
        self._workers = [_Worker(context, make) for _ in range(jobs - 1)]

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the workers at once: they hold nothing that matters."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()

    def walk(self, batches: Iterable[Batch], claim: Claim) -> Iterator[Annotated]:
        """Carry out batches side by side (see ``Pool.walk``).

        Raises:
            WorkerError: a worker process has ended.
        """
        journey = _Journey(self._workers, self._here, iter(batches))
        while not journey.over:
            _receive(self._workers, timeout=0)
            yield from journey.done()
            if not (journey.claim(claim) or journey.begin() or journey.over):
                _receive(self._workers)
        if journey.failure is not None:
            raise journey.failure


class _Journey:
    """All batches of one walk, in order.

    Attributes:
        failure: the first error, in the order of the batches, that ends the walk.
    """

    def __init__(self, workers: list[_Worker], here: LineStages, source: Iterator[Batch]) -> None:
        self._workers = workers
        self._here = here
        self._source: Iterator[Batch] | None = source
        self._unclaimed: deque[_Job] = deque()
        self._unwritten: deque[_Job] = deque()
        self.failure: StreamDedupError | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is on its way."""
        return not (self._source or self._unclaimed or self._unwritten)

    def done(self) -> Iterator[Annotated]:
        """Hand out what is done, in order; a slot is free when its batch has been written."""
        while self._unwritten and isinstance(answer := self._unwritten[0].answer, Annotated):
            job = self._unwritten.popleft()
            yield answer
            if job.worker is not None:
                job.worker.free.append(job.slot)

    def claim(self, claim: Claim) -> bool:
        """Claim the next batch, if it has been prepared, and have it finished."""
        if not self._unclaimed or (answer := self._unclaimed[0].answer) is None:
            return False
        job = self._unclaimed.popleft()
        try:
            claimed = claim(_prepared(answer))
        except StreamDedupError as error:
            self._fail(error)
            self._unclaimed.clear()
        else:
            self._unwritten.append(job)
            self._finish(job, claimed)
        return True

    def begin(self) -> bool:
        """Read the next batch and have it prepared, by a worker with a free slot or else here."""
        worker = max(self._workers, key=lambda worker: len(worker.free))
        own = sum(job.worker is None for job in self._unclaimed)
        if self._source is None or not (worker.free or own < OWN_DEPTH):
            return False
        try:
            batch = next(self._source, None)
        except StreamDedupError as error:
            self._fail(error)
            return True
        if batch is None:
            self._source = None
        elif worker.free:
            self._unclaimed.append(worker.prepare(batch, self._here))
        else:
            job = _Job()
            job.prepare_here(batch, self._here)
            self._unclaimed.append(job)
        return True

    def _finish(self, job: _Job, claimed: Claimed) -> None:
        """Have a claimed batch finished where it has been prepared."""
        if job.pending is not None:
            job.answer = self._here.finish(job.pending, claimed)
        elif job.worker is not None:
            job.worker.finish(job, claimed)

    def _fail(self, error: StreamDedupError) -> None:
        self._source = None
        self.failure = error


class _Worker:
    """A worker process, as it is seen from this one.

    Attributes:
        process: the process.
        connection: messages to and from it.
        free: slots that no batch holds; none before it has begun.
    """

    def __init__(self, context: ForkServerContext, make: Make) -> None:
        self._slots = Slots(DEPTH, _SLOT_BYTES)
        self._jobs: dict[int, _Job] = {}
        self.free: list[int] = []
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(make, theirs, self._slots), daemon=True)
        self.process.start()
        theirs.close()
        self._slots.close_handle()

    def prepare(self, batch: Batch, here: LineStages) -> _Job:
        """Have a batch prepared; one that has no room in a slot is prepared at once."""
        job = _Job(self, self.free.pop())
        sizes = self._slots.put(job.slot, batch)
        if sizes is not None:
            self._send(job, _Message(job.slot, _Stage.PREPARE, sizes))
            return job
        job.prepare_here(batch, here)
        return job

    def finish(self, job: _Job, claimed: Claimed) -> None:
        """Have a claimed batch finished."""
        sizes = self._slots.put(job.slot, claimed)
        value = None if sizes else claimed
        self._send(job, _Message(job.slot, _Stage.FINISH, sizes, value))

    def receive(self) -> None:
        """Take an answer.

        Raises:
            WorkerError: the process has ended.
        """
        try:
            message = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if message is None:
            self.free = list(range(DEPTH))
            return
        slot, _, sizes, value = message
        self._jobs.pop(slot).answer = value if sizes is None else self._slots.get(slot, sizes)

    def _send(self, job: _Job, message: _Message) -> None:
        job.answer = None
        self._jobs[job.slot] = job
        try:
            self.connection.send(message)
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> WorkerError:
        self.process.join(_END_SECONDS)
        code = self.process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return WorkerError(
            f"A process of --jobs ended ({how}). See whether the machine has memory left, and run "
            f"again, with fewer --jobs if it has not."
        )


def _prepared(answer: Answer) -> Prepared:
    """Return a prepared batch, or raise the error that it met."""
    if isinstance(answer, StreamDedupError):
        raise answer
    assert isinstance(answer, Prepared)  # noqa: S101 - for the type checker
    return answer


def _receive(workers: list[_Worker], timeout: float | None = None) -> None:
    """Wait for answers, some seconds or as long as it takes."""
    ready = wait([worker.connection for worker in workers], timeout)
    for worker in workers:
        if worker.connection in ready:
            worker.receive()


def _work(make: Make, connection: Connection, slots: Slots) -> None:
    """Prepare and finish batches until the other process closes the pipe or ends."""
    # Ctrl-C goes to all processes of a terminal; the other one ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stages = make()
    calm(CHUNK_LINES)
    pending: dict[int, Pending] = {}
    with suppress(EOFError, ConnectionError):
        connection.send(None)
        while True:
            message = connection.recv()
            answer = _carry_out(stages, pending, slots, message)
            sizes = slots.put(message.slot, _as_buffer(answer))
            value = None if sizes else answer
            connection.send(message._replace(sizes=sizes, value=value))


def _carry_out(
    stages: LineStages, pending: dict[int, Pending], slots: Slots, message: _Message
) -> Answer:
    slot, stage, sizes, value = message
    given = value if sizes is None else slots.get(slot, sizes)
    if stage is _Stage.FINISH:
        return stages.finish(pending.pop(slot), given)
    try:
        prepared, pending[slot] = stages.prepare(given)
    except StreamDedupError as error:
        return error
    return prepared


def _as_buffer(answer: Answer) -> object:
    """Keep the lines from being copied into a pickle."""
    if isinstance(answer, Annotated):
        return answer._replace(lines=uncopied(answer.lines))
    return answer
