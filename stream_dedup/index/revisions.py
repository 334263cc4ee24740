"""Which document revises which: the same id with a new text.

A document revises the original that was registered last under its id, if that has another text and
lies within the window. It must have been there before the document: one that comes later in the
same batch, or whose event time is later, or that was registered after the document itself, came
from an attempt of the same batch that was not published. So a batch that is decided again gets the
same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from stream_dedup.index.base import Attachment, Index, IndexBatch, Registered
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId, Revisions


class Answers(NamedTuple):
    """What an index says of a batch.

    Attributes:
        attachments: for each document that of a duplicate, None for an original.
        revised: for each document the digest of the text that it revises, or None; empty where
            revisions are of no interest.
    """

    attachments: Sequence[Attachment | None]
    revised: Sequence[bytes | None] = ()


class Reviser:
    """Claims batches, says which documents they revise, and forgets those when it is time."""

    def __init__(self, index: Index, settings: Settings) -> None:
        self._index = index
        self._revisions = settings.revisions
        # What is further away may have expired already, which must make no difference.
        self._window = inf if settings.window is None else settings.window
        self._replaced: dict[tuple[DocumentId, bytes], None] = {}

    def claim(self, batch: IndexBatch) -> Answers:
        """Decide a batch in order (see ``Index.claim``).

        Raises:
            ServiceError: the index is out of reach; the call can be made again.
        """
        attachments = self._index.claim(batch)
        if self._revisions is Revisions.OFF:
            return Answers(attachments)
        names = list(dict.fromkeys(batch.ids))
        found = dict(zip(names, self._index.named(names), strict=True))
        places = {name: _places(registered) for name, registered in found.items()}
        firsts: dict[tuple[int, bytes], int] = {}
        texts = list(zip(batch.identities.tolist(), batch.prints.digests, strict=True))
        for row, text in enumerate(texts):
            firsts.setdefault(text, row)
        revised: list[bytes | None] = []
        for row, (identity, digest) in enumerate(texts):
            registered = found[batch.ids[row]]
            end = places[batch.ids[row]].get((identity, digest), len(registered))
            # The latest first: an id may have very many, and often only one is of interest.
            before = (
                one
                for one in map(registered.__getitem__, range(end - 1, -1, -1))
                if 0 <= batch.times[row] - one.time <= self._window
                and firsts.get((one.identity, one.digest), -1) <= row
            )
            latest = next(before, None)
            if latest is None or latest.digest == digest:
                revised.append(None)
                continue
            revised.append(latest.digest)
            if self._revisions is Revisions.REPLACE:
                self._replace([latest, *before], digest, attachments[row])
        return Answers(attachments, revised)

    def settle(self) -> None:
        """Forget what has been replaced, now that its replacements have been published.

        Raises:
            ServiceError: the index is out of reach; the call can be made again.
        """
        if self._replaced:
            ids, digests = zip(*self._replaced, strict=True)
            self._index.forget(ids, digests)
            self._replaced.clear()

    def discard(self) -> None:
        """Forget nothing: what was claimed was not published, and will be claimed again."""
        self._replaced.clear()

    def _replace(
        self, before: Sequence[Registered], digest: bytes, attachment: Attachment | None
    ) -> None:
        """Note the earlier texts of an id, but for the one that the document is a duplicate of."""
        for one in before:
            name = one.document_id, one.digest
            original = attachment and (attachment.original_id, attachment.digest)
            if one.digest != digest and name != original:
                self._replaced[name] = None


def _places(registered: Sequence[Registered]) -> dict[tuple[int, bytes], int]:
    """Return where each text of each document stands first among the originals of an id."""
    last = len(registered) - 1
    return {
        (one.identity, one.digest): last - place for place, one in enumerate(reversed(registered))
    }
