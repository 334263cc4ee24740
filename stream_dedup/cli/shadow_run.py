"""What ``stream-dedup run`` does about a shadow: its settings, a summary, and pairs to label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import click
import msgspec

from stream_dedup.deduplicator import Stages
from stream_dedup.index.base import duplicate_id
from stream_dedup.settings import Settings
from stream_dedup.settings_sources import load_shadow
from stream_dedup.shadow import Comparison, Difference, Sample, with_texts
from stream_dedup.stream.decoding import Decoder
from stream_dedup.stream.files import STANDARD, open_output, read_lines
from stream_dedup.stream.lines import line_bytes
from stream_dedup.stream.poison import Poison
from stream_dedup.stream.stages import LineStages
from stream_dedup.types import Document, DocumentId, Status

#: Differences of each kind that a summary names.
_EXAMPLES = 3
#: Coverage of the interval of an agreement.
_CONFIDENCE = 0.95
#: Documents whose texts are named together.
_DOCUMENTS = 512


class Cell(msgspec.Struct, frozen=True):
    """Documents of one kind."""

    live: Status
    shadow: Status
    same_original: bool
    documents: int


class Example(msgspec.Struct, frozen=True):
    """A document that the two decided differently."""

    id: DocumentId
    live: Status
    live_original_id: DocumentId
    live_similarity: float | None
    shadow: Status
    shadow_original_id: DocumentId
    shadow_similarity: float | None


class ShadowSummary(msgspec.Struct, frozen=True):
    """What a run found about its shadow.

    Attributes:
        configuration: version of the shadow's fingerprint configuration.
        documents: documents that both decided.
        agreement: share with the same status and original; None where there is no document.
        agreement_interval: its 95% score interval (Wilson 1927), as if documents were independent.
        cells: how many documents of which kind; kinds without any are left out.
        similarity_documents: documents that both attach to one original and give a similarity.
        similarity_difference: the shadow's minus the live one, mean over these.
        largest_difference: the largest absolute difference of these.
        examples: some differences of each kind, drawn at random.
    """

    configuration: str
    documents: int
    agreement: float | None
    agreement_interval: tuple[float, float] | None
    cells: list[Cell]
    similarity_documents: int
    similarity_difference: float | None
    largest_difference: float
    examples: list[Example]


class ShadowRun:
    """The shadow of a run.

    Attributes:
        settings: of the second configuration.
    """

    def __init__(self, live: Settings, settings: Settings, samples: Path | None) -> None:
        self._live = live
        self._samples = samples
        self.settings = settings

    @classmethod
    def of(
        cls, live: Settings, state: Path | None, samples: Path | None, *, in_redis: bool
    ) -> Self | None:
        """Return the shadow that the settings name, if they do.

        Args:
            live: the settings of the run.
            state: file that keeps the shadow's originals.
            samples: file for pairs to label.
            in_redis: whether the originals are kept there.

        Raises:
            SettingsError: the shadow's settings cannot be used beside the live ones.
            UsageError: a flag speaks of a shadow, and there is none.
        """
        if live.shadow is not None:
            settings = load_shadow(live, live.shadow, in_redis=in_redis)
            Decoder(settings)  # it knows which fields a configuration needs
            return cls(live, settings, samples)
        if state is not None or samples is not None:
            msg = "--shadow-state and --shadow-samples need a shadow. Name its settings: --shadow."
            raise click.UsageError(msg)
        return None

    def end(
        self, comparison: Comparison | None, inputs: Iterable[Path], stages: LineStages
    ) -> ShadowSummary:
        """Write the sample, if it is wanted, and say what has been found.

        Raises:
            InputError: an input cannot be read again, or the file cannot be written.
        """
        if comparison is None:  # there was no document
            comparison = Comparison.of(self._live, self.settings)
        if self._samples is not None:
            write_samples(self._samples, comparison, inputs, stages)
        return summarize(comparison, Stages(self.settings).configuration)


def summarize(comparison: Comparison, configuration: str) -> ShadowSummary:
    """Say what a comparison has found."""
    # Imported here because a run without a shadow does without.
    from stream_dedup.evaluate.measures import wilson  # noqa: PLC0415

    counts, similarities = comparison.counts, comparison.similarities
    documents = counts.total()
    agreed = sum(count for kind, count in counts.items() if kind.agrees)
    measured = similarities.documents
    return ShadowSummary(
        configuration=configuration,
        documents=documents,
        agreement=agreed / documents if documents else None,
        agreement_interval=wilson(agreed, documents, _CONFIDENCE),
        cells=[Cell(*kind, documents=count) for kind, count in sorted(counts.items())],
        similarity_documents=measured,
        similarity_difference=similarities.total / measured if measured else None,
        largest_difference=similarities.largest,
        examples=[
            _example(difference)
            for differences in comparison.differences().values()
            for difference in differences[:_EXAMPLES]
        ],
    )


def in_sentences(summary: ShadowSummary) -> str:
    """Write a summary for people."""
    lines = [f"shadow (configuration {summary.configuration}):"]
    corner = "live \\ shadow"
    lines.append(f"{corner:>16}  " + "".join(f"{status:>17}" for status in Status))
    for live in Status:
        row = [_count(summary.cells, live, shadow) for shadow in Status]
        lines.append(f"{live:>16}  " + "".join(f"{count:>17,}" for count in row))
    if summary.agreement is not None and summary.agreement_interval is not None:
        low, high = summary.agreement_interval
        lines.append(f"same status and original: {summary.agreement:.2%} ({low:.2%} to {high:.2%})")
    moved = sum(
        cell.documents
        for cell in summary.cells
        if not cell.same_original and Status.ORIGINAL not in {cell.live, cell.shadow}
    )
    if moved:
        lines.append(f"duplicates by both, of different originals: {moved:,}")
    if summary.largest_difference and summary.similarity_difference is not None:
        lines.append(
            f"similarity to the same original: {summary.similarity_difference:+.3f} on average, "
            f"{summary.largest_difference:.3f} at most"
        )
    if summary.examples:
        lines.append("differences, some of each kind:")
    lines += [f"  {_described(example)}" for example in summary.examples]
    return "\n".join(lines)


def write_samples(
    path: Path, comparison: Comparison, inputs: Iterable[Path], stages: LineStages
) -> None:
    """Write the sample for a person to label, with the texts of originals from the inputs.

    Originals of an earlier run, or read from standard input, have no text there.

    Raises:
        InputError: an input cannot be read again, or the file cannot be written.
    """
    samples = list(comparison.samples())
    characters = stages.stages.settings.shadow_text
    if characters:
        samples = with_texts(samples, _texts(samples, inputs, stages), characters)
    with open_output(path) as file:
        file.write(b"".join(msgspec.json.encode(sample) + b"\n" for sample in samples))


def _texts(samples: list[Sample], inputs: Iterable[Path], stages: LineStages) -> dict[str, str]:
    """Return the texts of the originals in a sample by duplicate id: an id may have many texts."""
    wanted = {sample.id for sample in samples}
    found: dict[str, str] = {}
    batch: list[Document] = []
    for document in _documents(inputs, stages):
        if document.id in wanted:
            batch.append(document)
        if len(batch) == _DOCUMENTS:
            found |= _named(batch, stages)
            batch = []
    return found | _named(batch, stages)


def _documents(inputs: Iterable[Path], stages: LineStages) -> Iterator[Document]:
    for path in inputs:
        if path == STANDARD:
            continue
        for line in read_lines(path, 0, line_bytes(stages.stages.settings)):
            try:
                yield stages.lines.decode(line)
            except Poison:
                continue  # the run has set it aside


def _named(documents: list[Document], stages: LineStages) -> dict[str, str]:
    named = {}
    for configuration in filter(None, (stages.stages, stages.shadow)):
        digests = configuration.prepare(documents).prints.digests
        for document, digest in zip(documents, digests, strict=True):
            named[duplicate_id(document.id, digest)] = document.text
    return named


def _example(difference: Difference) -> Example:
    live, shadow = difference.live, difference.shadow
    return Example(
        id=difference.id,
        live=live.status,
        live_original_id=live.original_id,
        live_similarity=live.similarity,
        shadow=shadow.status,
        shadow_original_id=shadow.original_id,
        shadow_similarity=shadow.similarity,
    )


def _count(cells: list[Cell], live: Status, shadow: Status) -> int:
    return sum(cell.documents for cell in cells if (cell.live, cell.shadow) == (live, shadow))


def _described(example: Example) -> str:
    live = _side(example.live, example.live_original_id, example.live_similarity)
    shadow = _side(example.shadow, example.shadow_original_id, example.shadow_similarity)
    return f"{example.id}: live {live}, shadow {shadow}"


def _side(status: Status, original_id: DocumentId, similarity: float | None) -> str:
    if status is Status.ORIGINAL:
        return "original"
    measured = "" if similarity is None else f" ({similarity:.2f})"
    return f"{status.replace('_', ' ')} of {original_id}{measured}"
