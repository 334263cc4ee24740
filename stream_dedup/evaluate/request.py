"""From what a user gives, documents and a kind of truth, to a truth that can be scored against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stream_dedup.errors import SettingsError
from stream_dedup.evaluate.documents import Corpus, read_corpus
from stream_dedup.evaluate.join import resembling_pairs
from stream_dedup.evaluate.lists import read_labels, read_reference, save_reference
from stream_dedup.evaluate.reference import ReferenceTruth
from stream_dedup.evaluate.sets import ShingleSets, shingle_sets
from stream_dedup.evaluate.sweep import at_point
from stream_dedup.evaluate.truth import GroupTruth, PairTruth, Truth
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.settings import Settings

KINDS = ("pairs", "groups", "reference")
#: Settings that do not change shingles, and of which some go with one shingle or threshold only.
_PLAIN = {
    name: Settings.model_fields[name].default
    for name in ("method", "minhash", "threshold", "recall", "rows", "weights", "frequencies_file")
}
#: How far below the threshold of the reference the resemblance of a right pair may lie.
ACCEPT_BELOW = 0.05


class Request(NamedTuple):
    """Which truth is wanted.

    Attributes:
        kind: pairs, groups or reference; None infers it from what else is given.
        group_field: field with the gold group.
        pairs: file of labelled pairs.
        reference: file of a saved reference.
        save_reference: file to save a computed one to.
        reference_threshold: least resemblance of a reference pair; None takes the threshold.
        reference_shingle: shingle of the reference; None takes that of the settings.
        accept: least resemblance of a found pair that is right; None takes .05 less than the
            threshold of the reference.
    """

    kind: str | None = None
    group_field: str | None = None
    pairs: Path | None = None
    reference: Path | None = None
    save_reference: Path | None = None
    reference_threshold: float | None = None
    reference_shingle: str | None = None
    accept: float | None = None

    @property
    def truth(self) -> str:
        """The kind of truth, inferred where none is named."""
        if self.kind is not None:
            return self.kind
        if self.group_field is not None:
            return "groups"
        return "pairs" if self.pairs is not None else "reference"

    def check(self) -> None:
        """Refuse options that do not go together.

        Raises:
            SettingsError: pairs are wanted and no file is given, or two truths are.
        """
        given = [
            name
            for name, value in (
                ("groups", self.group_field),
                ("pairs", self.pairs),
                ("reference", self.reference or self.save_reference),
            )
            if value is not None
        ]
        if [name for name in given if name != self.truth]:
            msg = (
                "The options name more than one truth. Give one of --group-field, --pairs and "
                "--reference, and the --truth that goes with it."
            )
            raise SettingsError(msg)
        if self.truth == "pairs" and self.pairs is None:
            msg = "There are no labelled pairs. Name their file with --pairs."
            raise SettingsError(msg)


def prepare(paths: Sequence[Path], settings: Settings, request: Request) -> tuple[Corpus, Truth]:
    """Read the documents and make the truth about them.

    Raises:
        SettingsError: the options do not go together.
        InputError: a file cannot be read, or is not what it should be.
    """
    request.check()
    by_group = request.truth == "groups"
    corpus = read_corpus(paths, settings, request.group_field, groups=by_group)
    if corpus.groups is not None and by_group:
        return corpus, GroupTruth(corpus.groups)
    if request.pairs is not None:
        return corpus, PairTruth(read_labels(request.pairs, corpus), len(corpus.documents))
    return corpus, _reference(corpus, settings, request)


def _reference(corpus: Corpus, settings: Settings, request: Request) -> ReferenceTruth:
    if settings.window is not None:
        msg = (
            "A reference takes all pairs, whatever their times, but a window is set. Leave the "
            "window out, or give groups or labelled pairs."
        )
        raise SettingsError(msg)
    threshold = settings.threshold
    if request.reference_threshold is not None:
        threshold = request.reference_threshold
    shingle = request.reference_shingle or settings.shingle
    sets = sets_of(corpus, settings, shingle)
    if request.reference is not None:
        pairs = read_reference(request.reference, corpus, sets, threshold)
    else:
        pairs = resembling_pairs(sets, threshold)
    if request.save_reference is not None:
        save_reference(request.save_reference, corpus, pairs, shingle)
    accept = max(0.0, threshold - ACCEPT_BELOW) if request.accept is None else request.accept
    return ReferenceTruth(pairs, sets, accept)


def sets_of(corpus: Corpus, settings: Settings, shingle: str) -> ShingleSets:
    """Return the shingle sets of the documents, with another shingle than the settings' if need be.

    Raises:
        SettingsError: it is not a shingle.
    """
    plain = at_point(settings, _PLAIN | {"shingle": shingle})
    return shingle_sets(Fingerprinter(plain), corpus.texts, corpus.origins)
