"""A shadow beside the loop: published batches are decided a second time, in a thread of its own.

The live stream comes first. What the shadow meets, however it fails, is never seen by the loop, and
the loop waits for it in one case only: when the shadow works, but has been slower than the live
stream for so long that the backlog is full. Then the live stream goes at the shadow's pace, as long
as that takes out a batch now and then.

A shadow whose index is away tries the batch in hand again, and batches wait in the backlog, so
a short absence is caught up with and leaves no trace. Beyond the backlog new batches are skipped,
and counted: the shadow's index then lacks their originals.

A batch whose publishing failed may have been published nevertheless, so the shadow's index gets it,
uncounted. When it comes again the shadow gives the same answers, and they are counted then.

What tombstones name is forgotten at their place in the batch, and what revisions replace once the
batch is decided, as in the live index.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from stream_dedup import metrics
from stream_dedup.errors import ConfigurationMismatch, ServiceError, StreamDedupError
from stream_dedup.outage import Outage
from stream_dedup.stream.patience import BACKOFF
from stream_dedup.stream.tombstones import Tombstone, cut
from stream_dedup.types import Decision, Document, DocumentId

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

#: Longest time that the live stream waits for room in the backlog of a shadow that works.
ROOM_SECONDS = 2.0
#: Time that a shadow has at the end of its process to decide what waits.
END_SECONDS = 10.0
#: Time between two calls of ``Report.tick`` when there is nothing else to do.
TICK_SECONDS = 1.0
#: What a waiting document takes beside its text, in characters.
_OVERHEAD = 200


class Skipped(StrEnum):
    """Why a shadow did not decide a document."""

    #: The backlog was full: the index was away for too long, or the shadow is too slow.
    BACKLOG = "backlog"
    #: The shadow refuses the batch; its log tells why.
    REFUSED = "refused"
    #: The process ended first.
    END = "end"


class Decides(Protocol):
    """What a shadow needs of a ``Deduplicator``."""

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Decide a batch, in order."""

    def forget(self, ids: Sequence[DocumentId]) -> Sequence[int]:
        """Forget the originals that have these ids."""

    def settle(self) -> None:
        """Forget what revisions decided so far replace."""

    def discard(self) -> None:
        """Drop what waits for ``settle``."""

    def close(self) -> None:
        """Release the index."""


class Report(Protocol):
    """Where the decisions of both go."""

    def add(
        self, documents: Sequence[Document], live: Sequence[Decision], shadow: Sequence[Decision]
    ) -> None:
        """Take what both decided on published documents."""

    def tick(self) -> None:
        """Do what is due by the clock."""

    def close(self) -> None:
        """Say what has not been said yet, and release everything."""


class _Batch(NamedTuple):
    """Documents and tombstones that wait.

    Attributes:
        documents: the documents.
        decisions: what was published about them; None if that is not known.
        tombstones: what is to be forgotten between them.
        size: what it takes, in characters.
    """

    documents: Sequence[Document]
    decisions: Sequence[Decision] | None
    tombstones: Sequence[Tombstone]
    size: int


class Shadow:
    """Decides published batches a second time.

    Args:
        connect: opens the second index; called in the thread, and again after a failure.
        report: takes what both decided.
        backlog: characters of documents that may wait.
        forgets: whether the second index can forget; if not, tombstones are skipped.
    """

    def __init__(
        self,
        connect: Callable[[], Decides],
        report: Report,
        backlog: int,
        *,
        forgets: bool = True,
    ) -> None:
        self._connect = connect
        self._forgets = forgets
        self._report = report
        self._backlog = backlog
        self._decides: Decides | None = None
        self._waiting: deque[_Batch] = deque()
        self._size = 0
        #: Guards the two above, and tells of changes.
        self._changed = threading.Condition()
        #: The live stream does not wait for a shadow that fails, or took nothing while it waited.
        self._failing = False
        self._outage = Outage(log, "the shadow", state="cannot decide")
        self._in_hand: _Batch | None = None
        #: Documents skipped in a row, and whether the last batch was refused: each is logged once.
        self._skipped = 0
        self._refused = False
        self._ending = threading.Event()
        for reason in Skipped:
            metrics.shadow_skipped_documents_total.labels(str(reason))
        self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
        self._thread.start()

    def published(
        self,
        documents: Sequence[Document],
        decisions: Sequence[Decision],
        tombstones: Sequence[Tombstone] = (),
    ) -> None:
        """Take a batch that was published with these decisions."""
        self._offer(documents, decisions, tombstones)

    def unsettled(
        self, documents: Sequence[Document], tombstones: Sequence[Tombstone] = ()
    ) -> None:
        """Take a batch of which it is not known whether it was published; it may come again."""
        self._offer(documents, None, tombstones)

    def close(self) -> None:
        """Decide what waits, if that is done soon, and end."""
        with self._changed:
            self._ending.set()
            self._changed.notify_all()
        self._thread.join(END_SECONDS)
        with self._changed:
            left = [*self._waiting, *([self._in_hand] if self._in_hand else [])]
            self._waiting.clear()
        for batch in left:
            _skip(Skipped.END, batch.documents, batch.tombstones)

    def _offer(
        self,
        documents: Sequence[Document],
        decisions: Sequence[Decision] | None,
        tombstones: Sequence[Tombstone],
    ) -> None:
        if not self._forgets:
            _skip(Skipped.REFUSED, (), tombstones)
            tombstones = ()
        if not documents and not tombstones:
            return
        size = sum(len(document.text) for document in documents)
        size += sum(len(str(one)) for tombstone in tombstones for one in tombstone.ids)
        size += _OVERHEAD * (len(documents) + len(tombstones))
        batch = _Batch(documents, decisions, tombstones, size)
        with self._changed:
            if self._wait_for_room(size):
                self._waiting.append(batch)
                self._grow(size)
                self._changed.notify_all()
                if self._skipped:
                    log.info(
                        "the shadow goes on; it skipped %(documents)d documents",
                        {"documents": self._skipped},
                    )
                    self._skipped = 0
                return
        if not self._skipped:
            log.warning("the shadow's backlog is full: it skips documents")
        self._skipped += len(documents)
        _skip(Skipped.BACKLOG, documents, tombstones)

    def _wait_for_room(self, size: int) -> bool:
        def fits() -> bool:
            return not self._waiting or self._size + size <= self._backlog

        if not fits():
            self._changed.wait_for(lambda: fits() or self._failing, ROOM_SECONDS)
            # If it hangs, one wait is enough. It works again when it has taken out a batch.
            self._failing = self._failing or not fits()
        return fits()

    def _grow(self, size: int) -> None:
        self._size += size
        metrics.shadow_backlog_documents.set(sum(len(batch.documents) for batch in self._waiting))

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            self._handle(batch)
            self._in_hand = None
            self._report_safely(self._report.tick)
        self._report_safely(self._report.close)
        if self._decides is not None:
            self._decides.close()

    def _next(self) -> _Batch | None:
        """Wait for a batch; None when there is none and it is time to end."""
        with self._changed:
            while not self._waiting:
                if self._ending.is_set():
                    return None
                if not self._changed.wait(TICK_SECONDS):
                    self._report_safely(self._report.tick)
            self._in_hand = batch = self._waiting.popleft()
            self._grow(-batch.size)
            self._changed.notify_all()
            return batch

    def _handle(self, batch: _Batch) -> None:
        for part, ids in cut(len(batch.documents), batch.tombstones):
            self._decide(batch, part)
            self._forget(ids)
        self._settle(published=batch.decisions is not None)

    def _decide(self, batch: _Batch, part: slice) -> None:
        documents = batch.documents[part]
        if not documents:
            return
        decisions = self._patiently(lambda decides: decides.decide(documents))
        if isinstance(decisions, Skipped):
            _skip(decisions, documents)
            return
        self._refused = False
        if batch.decisions is not None:
            live = batch.decisions[part]
            self._report_safely(lambda: self._report.add(documents, live, decisions))

    def _forget(self, ids: Sequence[DocumentId]) -> None:
        if ids and isinstance(self._patiently(lambda decides: decides.forget(ids)), Skipped):
            metrics.shadow_skipped_ids_total.inc(len(ids))

    def _settle(self, *, published: bool) -> None:
        """Forget what was replaced; if the index is away now, after the next batch."""
        if self._decides is None:
            return
        if not published:
            self._decides.discard()
            return
        try:
            self._decides.settle()
        except StreamDedupError as error:
            log.warning(
                "the shadow keeps replaced originals for now: %(cause)s", {"cause": str(error)}
            )
        except Exception:
            log.exception("the shadow keeps replaced originals for now")

    def _patiently(
        self, act: Callable[[Decides], Sequence[_Result]]
    ) -> Sequence[_Result] | Skipped:
        """Do it, again and again while the index is away; return why not if it is not done."""
        pause = BACKOFF[0]
        while True:
            try:
                done = self._act(act)
            except (ServiceError, ConfigurationMismatch) as error:
                self._fail(error)
            except Exception as error:
                # Whatever it is, it is no reason to end the live stream, which has this process.
                if not self._refused:
                    trace = None if isinstance(error, StreamDedupError) else error
                    cause = {"cause": str(error)}
                    log.error("the shadow refuses documents: %(cause)s", cause, exc_info=trace)  # noqa: TRY400
                self._refused = True
                return Skipped.REFUSED
            else:
                self._failing = False
                self._outage.ended()
                return done
            if self._ending.wait(pause):
                return Skipped.END
            pause = min(2 * pause, BACKOFF[1])

    def _act(self, act: Callable[[Decides], Sequence[_Result]]) -> Sequence[_Result]:
        began = time.monotonic()
        if self._decides is None:
            self._decides = self._connect()
        done = act(self._decides)
        metrics.shadow_seconds_total.inc(time.monotonic() - began)
        return done

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._outage.failed(error)
            self._failing = True
            self._changed.notify_all()
        if self._decides is not None:  # entered again, an index tells if it has become another's
            self._decides.close()
            self._decides = None

    def _report_safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            log.exception("the shadow's report is incomplete")


def _skip(
    reason: Skipped, documents: Sequence[Document], tombstones: Sequence[Tombstone] = ()
) -> None:
    metrics.shadow_skipped_documents_total.labels(str(reason)).inc(len(documents))
    metrics.shadow_skipped_ids_total.inc(sum(len(tombstone.ids) for tombstone in tombstones))
