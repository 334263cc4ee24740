"""The contract that every index keeps.

``claim`` decides a batch as if its documents came one after another: a document is a duplicate of
the *earliest registered* original that is near it, and an original, registered for later documents,
when there is none. Two documents are near when they share a table key, lie within the window and
pass verification, or when their normalised texts are equal. The earliest, not the nearest, because
only then does a document get the same answer when it comes again after others have been registered.
With another ``Choice`` it belongs to the nearest of them, to the one with the earliest event time
or to the one with the smallest rank; of several such, to the earliest registered.

While several workers race, one thing less holds: a duplicate that is near two originals, which are
not near each other and are registered at that very moment, may belong to either, and to the other
when it comes again. An original stays one, with its id, and a duplicate stays a duplicate.

An original may go: it is *forgotten*, or a *sweep* removes it when its time is over. It never
matches again, and the next document that would have been its duplicate is an original. With
``renew`` an original's time goes on with its duplicates: a document is near it from a window before
its event time to a window after the latest of them that an earlier batch brought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.index.expiry import Swept
from stream_dedup.types import Choice, Document, DocumentId, Score
from stream_dedup.verify.evidence import Evidence, Scores
from stream_dedup.verify.verifier import Verifier, compare_rows

if TYPE_CHECKING:
    from stream_dedup.index.candidates import Candidates


class IndexBatch(NamedTuple):
    """A batch on its way through an index.

    Attributes:
        ids: document ids.
        identities: (documents,) uint64, the same for the same source and id.
        times: (documents,) float64 event times, seconds; 0 where unknown.
        prints: the fingerprints.
        ranks: (documents,) float64, the smaller the better; infinite where unknown.
    """

    ids: list[DocumentId]
    identities: npt.NDArray[np.uint64]
    times: npt.NDArray[np.float64]
    prints: Fingerprints
    ranks: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.ids)

    def rows(self, rows: range | npt.NDArray[np.int64]) -> IndexBatch:
        """Return some of the documents, in the order of ``rows``; none for a row past the end."""
        index = np.asarray(rows, np.int64)
        index = index[index < len(self)]
        chosen = index.tolist()
        empty, digests, keys, sketches, payloads = self.prints
        return IndexBatch(
            [self.ids[row] for row in chosen],
            self.identities[index],
            self.times[index],
            Fingerprints(
                empty[index],
                [digests[row] for row in chosen],
                keys.take(index, axis=0),
                sketches.take(index, axis=0),
                [payloads[row] for row in chosen] if payloads else (),
            ),
            self.ranks[index],
        )

    def digest_words(self) -> npt.NDArray[np.uint64]:
        """Return the digests as (documents, 2) uint64."""
        return np.frombuffer(b"".join(self.prints.digests), "<u8").reshape(-1, 2)


class Attachment(NamedTuple):
    """The original that a duplicate is attached to.

    Attributes:
        original_id: the original's document id.
        digest: digest of the original's normalised text, 16 bytes.
        score: the measure that decides, or Hamming distance, or both.
        exact: whether the normalised texts are equal.
    """

    original_id: DocumentId
    digest: bytes
    score: Score
    exact: bool


class Registered(NamedTuple):
    """An original, as far as its id and text go.

    Attributes:
        document_id: its document id.
        digest: digest of its normalised text, 16 bytes.
        identity: the same for the same source and id (see ``IndexBatch``).
        time: its event time, seconds; 0 where unknown.
    """

    document_id: DocumentId
    digest: bytes
    identity: int
    time: float


class LookUp(Protocol):
    """Finds originals and changes nothing."""

    def look_up(self, batch: IndexBatch) -> list[Attachment | None]:
        """Say of each document, alone, what ``Index.claim`` would say of it at this moment.

        No document is compared with another of the batch, and nothing is registered.

        Raises:
            ServiceError: the index is out of reach.
        """

    def candidates(self, batch: IndexBatch) -> Candidates:
        """Return the originals that share a table key with each document, within the window.

        Raises:
            ServiceError: the index is out of reach.
        """

    def close(self) -> None:
        """Release files and connections."""


class Index(LookUp, Protocol):
    """Registers originals and finds them again.

    Attributes:
        late: documents so far that came later than ``lateness``: some originals may have gone.
    """

    late: int

    def claim(self, batch: IndexBatch) -> list[Attachment | None]:
        """Decide a batch in order: an attachment for a duplicate, None for an original.

        Raises:
            ServiceError: the index is out of reach; nothing is known about the batch, and the
                call can be made again.
        """

    def register(self, batch: IndexBatch) -> None:
        """Register documents that are known to be originals, in order, without looking for others.

        None of them may be empty, registered already or near an original; nobody may claim
        meanwhile.

        Raises:
            ServiceError: the index is out of reach; not all of them are registered.
        """

    def read_originals(self) -> Iterator[IndexBatch]:
        """Yield all originals, in order of registration, some at a time.

        Raises:
            ServiceError: the index is out of reach.
        """

    def named(self, ids: Sequence[DocumentId]) -> list[list[Registered]]:
        """Return the originals that have each of these ids, the earliest registered first.

        Raises:
            ServiceError: the index is out of reach, or does not keep ids.
        """

    def forget(
        self, ids: Sequence[DocumentId], digests: Sequence[bytes] | None = None
    ) -> list[int]:
        """Remove the originals that have these ids; return how many had each.

        An original is gone at once: it matches nothing any more, and nothing of its content stays.
        The same id twice, or one that has no original, removes nothing more.

        Args:
            ids: document ids.
            digests: for each id the digest of one text, 16 bytes; only originals of that go.

        Raises:
            ServiceError: the index is out of reach, or does not keep ids; some may have been
                removed, and the call can be made again.
        """

    def sweep(self) -> Swept:
        """Remove what is of no more use: originals whose time is over, and what was left behind.

        It may run beside anything, and end at any moment.

        Raises:
            ServiceError: the index is out of reach.
        """


class Matcher:
    """Decides whether two documents are near: within the window, and by their evidence.

    Attributes:
        first: whether a duplicate simply belongs to the earliest registered of its near originals.
        best: score of two equal texts.
    """

    def __init__(
        self, verifier: Verifier, window: float | None, choice: Choice = Choice.FIRST
    ) -> None:
        self._verifier = verifier
        self._window = window
        self._choice = choice
        self.first = choice is Choice.FIRST
        self.best = verifier.best
        self.compare = verifier.compare
        self.scores = verifier.scores

    def within_window(
        self,
        left: npt.NDArray[np.float64],
        right: npt.NDArray[np.float64],
        renewed: npt.NDArray[np.float64] | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Say which pairs of event times are at most the window apart.

        Args:
            left: event times of documents.
            right: event times of others, or of originals.
            renewed: times to which these were renewed, at least their event times.
        """
        if self._window is None:
            return np.ones(len(left), np.bool_)
        apart = left - right
        late = apart if renewed is None else left - renewed
        return (-apart <= self._window) & (late <= self._window)

    def compare_rows(
        self,
        left: Evidence,
        rows: npt.NDArray[np.int64],
        right: Evidence,
        others: npt.NDArray[np.int64],
    ) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """Return the score of each pair of rows, and whether the pair is near."""
        return compare_rows(self._verifier, (left, rows), (right, others))

    def preferences(
        self, scores: Scores, times: npt.NDArray[np.float64], ranks: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Order the near originals of a document, given their scores, event times and ranks.

        The smallest is preferred; of several, the one that was registered first.
        """
        match self._choice:
            case Choice.NEAREST:
                return -scores if self._verifier.larger_is_nearer else scores
            case Choice.EARLIEST:
                return times
            case Choice.PREFERRED:
                return ranks
            case _:
                return np.zeros(len(scores))


def index_batch(
    documents: Sequence[Document], prints: Fingerprints, identity_seed: int = 0
) -> IndexBatch:
    """Put documents and their fingerprints together.

    Args:
        documents: the documents.
        prints: their fingerprints.
        identity_seed: ``Fingerprinter.id_seeds.identity``; 0 is that of the empty seed.
    """
    names = [document.source.encode() + b"\0" + _encoded(document.id) for document in documents]
    return IndexBatch(
        ids=[document.id for document in documents],
        identities=_hashes(names, identity_seed),
        times=np.array([document.time or 0.0 for document in documents], np.float64),
        prints=prints,
        ranks=np.array([np.inf if d.rank is None else d.rank for d in documents], np.float64),
    )


def id_hashes(ids: Sequence[DocumentId], seed: int) -> npt.NDArray[np.uint64]:
    """Hash document ids, to find originals by them: (ids,) uint64; 1 and "1" are two ids.

    Args:
        ids: document ids.
        seed: ``Fingerprinter.id_seeds.place``.
    """
    return _hashes(map(_encoded, ids), seed)


def _hashes(names: Iterable[bytes], seed: int) -> npt.NDArray[np.uint64]:
    return np.array([xxhash.xxh3_64_intdigest(name, seed) for name in names], np.uint64)


def _encoded(document_id: DocumentId) -> bytes:
    """Return bytes that no other id has: the id 1 is not the id "1", nor one with a NUL before."""
    if isinstance(document_id, int):
        return b"\0%d" % document_id
    encoded = document_id.encode("utf-8", "surrogatepass")
    return b"\0" + encoded if encoded.startswith(b"\0") else encoded


def duplicate_id(original_id: DocumentId, digest: bytes) -> str:
    """Name a duplicate group by its original: 96 bits of xxh3-128 over text digest and id.

    It follows from the original alone, so it is the same after a replay or a rebuilt index.
    """
    return xxhash.xxh3_128_hexdigest(digest + _encoded(original_id))[:24]
