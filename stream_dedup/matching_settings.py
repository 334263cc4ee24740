"""What a document is and how documents are compared: each setting of it once, and its checks."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, SecretStr, model_validator

from stream_dedup.setting_types import Clean, Duration, Shingle, read_number, setting
from stream_dedup.types import Choice, Measure, Method, Revisions, VerifyBy

#: A table's number is one byte in the keys of a Redis index.
MAX_TABLES = 256

#: Beyond this distance 64-bit fingerprints of unrelated texts begin to meet.
MAX_HAMMING_64 = 8

#: Blocks beyond hamming when ``blocks`` is 0: two-block prefixes (25 bits for hamming 3) in
#: C(hamming + 2, 2) tables; hamming + 1 blocks would leave prefixes of one block (16 bits).
EXTRA_BLOCKS = 2

_OF_SETS = (
    Measure.RESEMBLANCE,
    Measure.CONTAINMENT,
    Measure.COSINE,
    Measure.DICE,
    Measure.OVERLAP,
)
#: The measures that can be computed from what is kept with each original.
MEASURES = {
    VerifyBy.SKETCH: (Measure.RESEMBLANCE,),
    VerifyBy.BOTTOM: _OF_SETS,
    VerifyBy.MOD: _OF_SETS,
    VerifyBy.BLOOM: _OF_SETS,
    VerifyBy.SHINGLES: _OF_SETS,
    VerifyBy.TEXT: (Measure.LCS, Measure.EDIT),
}


class MatchingSettings(BaseModel):
    """What decides which documents match, and how long an original is kept."""

    # What a document is.
    id_field: str = setting("id", "input", "JSON field that holds the document id.")
    text_field: str = setting("text", "input", "JSON field that holds the text.")
    time_field: str | None = setting(
        None,
        "input",
        "JSON field that holds the event time (RFC 3339, or seconds or milliseconds since the "
        "epoch). Without it the worker takes the Kafka timestamp.",
    )

    origin_field: str | None = setting(
        None,
        "input",
        "JSON field that holds what the document comes from (site, feed, publisher); it decides "
        "which lines are boilerplate.",
    )
    rank_field: str | None = setting(
        None,
        "input",
        "JSON field that holds the rank of the document's publisher, a number, the smaller the "
        "better; see choice.",
    )

    # How documents are compared. These make up the configuration version of an index.
    method: Method = setting(
        Method.MINHASH, "fingerprint", "Fingerprint: minhash, simhash or fused."
    )
    threshold: float = setting(
        0.8,
        "fingerprint",
        "Resemblance from which MinHash calls two documents near.",
        ge=0.05,
        le=1.0,
    )
    minhash: Literal["one-permutation", "classic"] = setting(
        "one-permutation",
        "fingerprint",
        "How MinHash values are made: one-permutation hashing, or 128 universal hash functions.",
    )
    hamming: int = setting(
        3,
        "fingerprint",
        "Differing bits up to which SimHash calls two documents near; of 64 bits, at most 8.",
        ge=0,
        le=16,
    )
    simhash_bits: Annotated[Literal[64, 128], BeforeValidator(read_number)] = setting(
        64, "fingerprint", "Bits of a SimHash."
    )
    weights: Literal["one", "tf", "tfidf"] = setting(
        "tf",
        "fingerprint",
        "How much a shingle counts in a SimHash: once, as often as it occurs, or that times its "
        "inverse document frequency (see frequencies_file).",
    )
    frequencies_file: Path | None = setting(
        None,
        "fingerprint",
        "File of document frequencies for weights tfidf; made by stream-dedup learn frequencies.",
    )
    fused_resemblance: float = setting(
        0.6,
        "fingerprint",
        "Resemblance that the method fused wants of two documents that are within hamming but "
        "below the threshold.",
        ge=0.0,
        le=1.0,
    )
    shingle: Shingle = setting(
        "word:3", "fingerprint", "Shingle unit and size: word:1 to word:8, char:2 to char:16."
    )
    punctuation: Literal["default", "keep", "drop"] = setting(
        "default",
        "fingerprint",
        "Punctuation in shingles: keep, drop, or default, which drops it from word shingles and "
        "keeps it in character shingles.",
    )
    clean: Clean = setting(
        "",
        "fingerprint",
        "Steps that take noise out of a text before it is compared, in this order, with commas "
        "between: markup, urls, numbers, boilerplate.",
    )
    boilerplate_file: Path | None = setting(
        None,
        "fingerprint",
        "File of the lines that the step boilerplate drops; stream-dedup learn boilerplate makes "
        "it.",
    )
    recall: float = setting(
        0.99,
        "fingerprint",
        "Share of pairs exactly at the threshold that the MinHash tables must find.",
        ge=0.5,
        le=0.9999,
    )
    blocks: int = setting(
        0,
        "fingerprint",
        "Blocks that a SimHash is cut into: more make more tables and fewer candidates; 0 takes "
        "hamming + 2. See stream-dedup plan.",
        ge=0,
        le=64,
    )
    inner_blocks: int = setting(
        0,
        "fingerprint",
        "Blocks that the bits outside a SimHash table's blocks are cut into again; 0 does not.",
        ge=0,
        le=64,
    )
    rows: int = setting(
        0,
        "fingerprint",
        "MinHash values in one band: fewer make fewer tables and more candidates; 0 takes the most "
        "that recall allows. See stream-dedup plan.",
        ge=0,
        le=128,
    )
    max_characters: int = setting(
        1_000_000,
        "fingerprint",
        "Characters of a text that are shingled; the exact comparison always takes all of it.",
        ge=1_000,
        le=100_000_000,
    )
    window: Duration | None = setting(
        None,
        "fingerprint",
        "Two documents match only when their event times are at most this far apart (30d, 12h).",
    )
    renew: bool = setting(
        default=False,
        group="fingerprint",
        description="With a window: whether a duplicate renews its original, so that the window "
        "goes on from the latest of its duplicates.",
    )
    verify_by: VerifyBy = setting(
        VerifyBy.SKETCH,
        "fingerprint",
        "What is kept with each original to verify candidates by: sketch (the fingerprint), "
        "bottom, mod, bloom, shingles or text. See docs/verification.md.",
    )
    measure: Measure = setting(
        Measure.RESEMBLANCE,
        "fingerprint",
        "Measure that candidates are verified by: lcs and edit with text; resemblance with all "
        "others; containment, cosine, dice and overlap with bottom, mod, bloom and shingles.",
    )
    verify_threshold: float | None = setting(
        None,
        "fingerprint",
        "Value of the measure from which a candidate is near; without it, threshold.",
        ge=0.05,
        le=1.0,
    )
    choice: Choice = setting(
        Choice.FIRST,
        "fingerprint",
        "Which of several near originals a duplicate belongs to: first (registered), nearest, "
        "earliest (event time) or preferred (smallest rank). Only first gives the same answers "
        "when a stream comes again to an index that has moved on.",
    )
    seed: SecretStr = setting(
        SecretStr(""),
        "fingerprint",
        "Secret that keys every hash, so that nobody outside can aim documents at one table key.",
    )
    seed_file: Path | None = setting(
        None,
        "fingerprint",
        "File that holds that secret, instead of seed; read once, at the start.",
    )

    # What leaves an index, and what takes the place of what.
    lateness: Duration = setting(
        86_400.0,
        "forgetting",
        "Time by which a document may be late: an original is kept for that much longer than its "
        "window, counted from the latest event time.",
    )
    max_future: Duration = setting(
        3_600.0,
        "forgetting",
        "How far an event time may be ahead of the clock; one that is further counts as this far "
        "when the index decides what has expired.",
    )
    revisions: Revisions = setting(
        Revisions.OFF,
        "forgetting",
        "What becomes of a new text under an id that has an original: nothing of note (off), its "
        "decision names that original (link), which is then forgotten (replace).",
    )

    @model_validator(mode="after")
    def _weights_are_known(self) -> Self:
        if self.weights == "tfidf" and self.frequencies_file is None:
            msg = (
                "weights is tfidf, but no frequencies_file is set; make one with stream-dedup "
                "learn frequencies"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _blocks_fit(self) -> Self:
        if self.simhash_bits == 64 and self.hamming > MAX_HAMMING_64:
            msg = (
                f"hamming can be at most {MAX_HAMMING_64} for a SimHash of 64 bits, and is "
                f"{self.hamming}; lower it, or take simhash_bits 128"
            )
            raise ValueError(msg)
        for name in ("blocks", "inner_blocks"):
            if 0 < getattr(self, name) <= self.hamming:
                msg = f"{name} must be 0 or more than hamming, which is {self.hamming}"
                raise ValueError(msg)
        tables = comb(self.simhash_blocks, self.hamming)
        tables *= comb(self.inner_blocks, self.hamming) if self.inner_blocks else 1
        if tables > MAX_TABLES:
            msg = f"these blocks make {tables} tables, more than {MAX_TABLES}; take fewer blocks"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _measure_fits(self) -> Self:
        if self.measure not in MEASURES[self.verify_by]:
            allowed = ", ".join(MEASURES[self.verify_by])
            others = ", ".join(kind for kind, found in MEASURES.items() if self.measure in found)
            msg = (
                f"measure {self.measure} cannot be had with verify_by {self.verify_by}; take one "
                f"of its measures ({allowed}), or for {self.measure} another verify_by ({others})"
            )
            raise ValueError(msg)
        if self.by_hamming and self.verify_threshold is not None:
            msg = (
                "verify_threshold does not apply where SimHash fingerprints are compared, which "
                "are near within hamming bits; leave it out, or take another verify_by"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _window_fits(self) -> Self:
        if self.renew and self.window is None:
            msg = "renew makes a window go on, but no window is set; set one, or leave renew out"
            raise ValueError(msg)
        return self

    @property
    def by_hamming(self) -> bool:
        """Whether the Hamming distance of SimHash fingerprints decides."""
        return self.method is Method.SIMHASH and self.verify_by is VerifyBy.SKETCH

    @property
    def near_from(self) -> float:
        """Value of the measure from which a candidate is near."""
        return self.threshold if self.verify_threshold is None else self.verify_threshold

    @property
    def simhash_blocks(self) -> int:
        """Blocks that a SimHash is cut into."""
        return self.blocks or self.hamming + EXTRA_BLOCKS

    @property
    def shingle_unit(self) -> str:
        """``word`` or ``char``."""
        return self.shingle.split(":")[0]

    @property
    def shingle_size(self) -> int:
        """Tokens or characters in one shingle."""
        return int(self.shingle.split(":")[1])

    @property
    def clean_steps(self) -> list[str]:
        """The steps of ``clean``, in order."""
        return self.clean.split(",") if self.clean else []

    @property
    def is_punctuation_inverted(self) -> bool:
        """Whether shingles of this unit treat punctuation the other way than by default."""
        return self.punctuation == ("keep" if self.shingle_unit == "word" else "drop")
