"""The plan of the settings in force: what their index takes at the size that it is laid out for."""

from __future__ import annotations

from stream_dedup.fingerprint.fingerprinter import method_of
from stream_dedup.settings import Settings
from stream_dedup.tables.plan import Design, Load, Plan, predict
from stream_dedup.types import Choice, VerifyBy

#: Mean bytes of a payload for documents of 150 words (benchmarks/verification.py), and of what a
#: record has besides: the length of a payload, a rank.
_PAYLOAD_BYTES = {
    VerifyBy.BOTTOM: 1_192,
    VerifyBy.MOD: 1_192,
    VerifyBy.BLOOM: 1_032,
    VerifyBy.SHINGLES: 1_192,
    VerifyBy.TEXT: 468,
}
_LENGTH_BYTES, _RANK_BYTES = 4, 8


def evidence_bytes(settings: Settings, mean: int | None = None) -> int:
    """Return the bytes of a record for which the settings decide.

    Args:
        settings: decide.
        mean: mean bytes of what is kept beside the fingerprint; None for documents of 150 words.
    """
    size = _RANK_BYTES if settings.choice is Choice.PREFERRED else 0
    if settings.verify_by is not VerifyBy.SKETCH:
        return size + _LENGTH_BYTES + (mean or _PAYLOAD_BYTES[settings.verify_by])
    return size + method_of(_without_files(settings)).sketch_bytes


def planned(settings: Settings, memory: int = Load._field_defaults["memory"]) -> Plan:
    """Return the plan of the index that these settings make, at ``expected_originals``.

    Args:
        settings: those in force.
        memory: bytes that a shard may take.
    """
    prefix_bits = tuple(method_of(_without_files(settings)).prefix_bits)
    design = Design("as set", {}, prefix_bits, settings.recall)
    load = Load(
        settings.expected_originals,
        evidence_bytes(settings),
        memory=memory,
        namespace=settings.redis_namespace,
        ids=settings.index_ids,
    )
    return predict(design, load)


def _without_files(settings: Settings) -> Settings:
    """Leave out the file of document frequencies, which no plan depends on."""
    return settings.model_copy(update={"weights": "tf"})
