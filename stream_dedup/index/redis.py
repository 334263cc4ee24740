"""The index in Redis: batches through the claim protocol, any number of workers side by side."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Self

import numpy as np

from stream_dedup.errors import ServiceError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.audit_reading import Reader
from stream_dedup.index.base import Attachment, IndexBatch, Matcher, Registered
from stream_dedup.index.bulk import Registrar
from stream_dedup.index.candidates import Candidates
from stream_dedup.index.claiming import Claiming
from stream_dedup.index.connection import LostWritesError, connect
from stream_dedup.index.counts import ClaimCounts
from stream_dedup.index.description import describe
from stream_dedup.index.driver import Claims
from stream_dedup.index.expiry import Horizon, Swept
from stream_dedup.index.forgetting import Forgetting
from stream_dedup.index.keys import ClaimIds, Layout
from stream_dedup.index.look_up import RedisLookUp
from stream_dedup.index.reassembly import reassemble
from stream_dedup.index.records import RecordFormat
from stream_dedup.index.rounds import Round
from stream_dedup.index.store import RedisStore
from stream_dedup.index.sweep import Pause, Sweeper, at_full_speed
from stream_dedup.index.watermark import Watermark
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId

log = logging.getLogger(__name__)

#: How often a batch is decided again at once when Redis has lost writes; more is no coincidence.
_LOST_TRIES = 3
#: Documents claimed together; bounds the pairs that one viral post can make within a batch.
STEP = 512


class RedisIndex:
    """An index in Redis or Valkey, shared by any number of workers.

    Attributes:
        counts: what the claims of the latest batch went through.
        late: documents so far that came later than ``lateness``.
    """

    def __init__(self, store: RedisStore, settings: Settings, fingerprinter: Fingerprinter) -> None:
        """Enter the index through ``store``; see ``connect``."""
        self.store = store
        self.matcher = Matcher(fingerprinter.verifier, settings.window, settings.choice)
        self.records = RecordFormat.of(fingerprinter)
        self.windowed = settings.window is not None
        self.grace = settings.claim_grace
        self._look_up = RedisLookUp(store, self.matcher, self.records)
        self._described = describe(fingerprinter.described, settings)
        self.ids = ClaimIds(store.enter(fingerprinter.index_version, self._described))
        self.counts = ClaimCounts()
        self.late = 0
        self._watermark = Watermark(store, Horizon.of(settings))
        self._fingerprinter = fingerprinter
        self._settings = settings
        self._expected = settings.expected_originals
        self._outgrown = False
        self._registrar: Registrar | None = None

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Connect, load the functions, and enter the index.

        Raises:
            ServiceError: Redis is out of reach or refuses.
            ConfigurationMismatch: the index was built with other settings.
        """
        fingerprinter = Fingerprinter(settings)
        layout = Layout.design(
            settings.redis_namespace,
            settings.partitions,
            fingerprinter.method.prefix_bits,
            settings.expected_originals,
            ids=settings.index_ids,
            id_seed=fingerprinter.id_seeds.place,
        )
        store = RedisStore(connect(settings), layout, settings)
        return cls(store, settings, fingerprinter)

    def claim(self, batch: IndexBatch) -> list[Attachment | None]:
        """Decide a batch in order (see ``Index.claim``).

        Where Redis turns out to have lost writes, all of it is decided again: what was decided of
        it may be gone.
        """
        for _ in range(_LOST_TRIES):
            try:
                return self.claim_once(batch)
            except LostWritesError as error:
                self._enter_again(error)
        return self.claim_once(batch)

    def claim_once(self, batch: IndexBatch) -> list[Attachment | None]:
        """Decide a batch in order.

        Raises:
            LostWritesError: Redis has lost writes.
            ServiceError: it is out of reach or refuses.
        """
        self.store.keep_up()
        self.counts = ClaimCounts()
        decided: list[Attachment | None] = []
        renewed: dict[int, float] = {}
        for start in range(0, len(batch), STEP):
            claiming = Claiming(self, batch.rows(range(start, start + STEP)))
            decided += claiming.run()
            renewed |= claiming.renewed()
            self.counts = claiming.counted(self.counts)
        self._renew(renewed)
        late, ahead = self._watermark.see(batch.times)
        self.counts = self.counts._replace(late=late, ahead=ahead)
        self.late += late
        self._warn_when_outgrown()
        return decided

    def look_up(self, batch: IndexBatch) -> list[Attachment | None]:
        """Say what each document belongs to (see ``LookUp.look_up``)."""
        return self._look_up.look_up(batch)

    def candidates(self, batch: IndexBatch) -> Candidates:
        """Return the originals that share a table key (see ``LookUp.candidates``)."""
        return self._look_up.candidates(batch)

    def register(self, batch: IndexBatch) -> None:
        """Register documents that are known to be originals (see ``Index.register``)."""
        self.register_as(batch, self.mint(len(batch)))

    def mint(self, count: int) -> Claims:
        """Return fresh claim ids, by the clock of the index (see ``ClaimIds.mint``)."""
        return self.ids.mint(self.store.clock.now(), count)

    def register_as(self, batch: IndexBatch, claims: Claims) -> None:
        """Register originals under claim ids of the caller's (see ``Registrar.register``)."""
        self._watermark.see(batch.times)
        if self._registrar is None:
            self._registrar = Registrar(self.store.client, self.store.layout, self.records)
        self._registrar.register(batch, claims)

    def read_originals(self) -> Iterator[IndexBatch]:
        """Yield all originals, in order of registration (see ``reassembly``)."""
        return reassemble(self.reader(), self.records)

    def reader(self) -> Reader:
        """Return what reads all records and entries of the index."""
        return Reader(self.store.client, self._settings, self._fingerprinter.index_version)

    def named(self, ids: Sequence[DocumentId]) -> list[list[Registered]]:
        """Return the originals that have each of these ids (see ``Index.named``)."""
        return self._forgetting().named(ids)

    def forget(
        self, ids: Sequence[DocumentId], digests: Sequence[bytes] | None = None
    ) -> list[int]:
        """Remove the originals that have these ids (see ``Index.forget``)."""
        return self._forgetting().forget(ids, digests)

    def sweep(self, pause: Pause = at_full_speed) -> Swept:
        """Remove what is of no more use (see ``Index.sweep``).

        Args:
            pause: called after each round of calls with the seconds that it took; what it raises
                ends the sweep.
        """
        self._watermark.flush()
        return Sweeper(self.store, self._settings, self.records, pause).sweep()

    @property
    def originals(self) -> int:
        """Number of originals, as far as this worker has seen by its own commits."""
        return sum(self.store.originals.values())

    def close(self) -> None:
        """Tell the index how far time has come, and close the connections."""
        with suppress(ServiceError):
            self._watermark.flush()
        self.store.close()

    def _enter_again(self, error: LostWritesError) -> None:
        """Begin anew as another worker: the number may have been given to somebody else."""
        log.warning("%(error)s; going on as a new worker", {"error": str(error)})
        self.ids.renumber(self.store.enter(self._fingerprinter.index_version, self._described))
        self._watermark.lost()
        if self.store.begins:
            log.warning(
                "the index %(namespace)r was gone and begins anew, empty",
                {"namespace": self.store.layout.namespace},
            )

    def _forgetting(self) -> Forgetting:
        return Forgetting(self.store, self.records, self._fingerprinter)

    def _renew(self, renewed: dict[int, float]) -> None:
        """Move the times of originals forward that were renewed by duplicates."""
        if renewed:
            round_ = Round(self.store)
            round_.renew(np.array(list(renewed), np.uint64), np.array(list(renewed.values())))
            round_.run()

    def _warn_when_outgrown(self) -> None:
        """Warn once when the index holds more than it was laid out for."""
        if self._outgrown or self.originals <= self._expected:
            return
        self._outgrown = True
        log.warning(
            "the index holds %(originals)d originals and was laid out for %(planned)d: probes "
            "return more candidates and entries take more memory; plan a larger one with "
            "stream-dedup plan",
            {"originals": self.originals, "planned": self._expected},
        )
