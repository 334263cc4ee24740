"""What a table design takes at a number of originals: candidates, memory, shards and rate.

All of it is arithmetic; nothing here talks to Redis. ``docs/planner.md`` works it through with
figures, and ``make plan-check`` holds it against a real server.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from math import ceil, log2
from typing import NamedTuple

from stream_dedup.errors import SettingsError
from stream_dedup.matching_settings import EXTRA_BLOCKS, MAX_TABLES
from stream_dedup.tables.bands import (
    BandDesign,
    Rates,
    design_bands,
    error_rates,
    find_probability,
)
from stream_dedup.tables.blocks import (
    MAX_PREFIX_BITS,
    WORD_BITS,
    block_permutations,
    count_tables,
)
from stream_dedup.tables.footprint import hash_bytes, set_bytes

#: Share of a shard's memory that a plan fills; the rest is for fragmentation, buffers and growth.
FILL = 0.8
#: Partitions for each shard, so that shares even out and slots can be moved to further shards.
_PARTITIONS_PER_SHARD = 16
_LEAST_PARTITIONS, _MOST_PARTITIONS = 64, 4096
_CLUSTER_SLOTS = 16384

#: Members of a sorted set, and records of a hash, that Layout.design (index/keys.py) aims at.
_MEMBERS, _RECORDS = 16, 64
_MOST_SET_BITS = 32
#: Bytes of a record (index/records.py) before its sketch: its fate and its head.
_RECORD_BYTES = 1 + 32

#: Bits of the key of a document id (index/keys.py).
_ID_BITS = 53
#: Microseconds of server CPU time for an original: its record, each key that is probed and written,
#: and each candidate (sent, its record read, the key written by a second call). Measured with Redis
#: 7.0 on one core of an AMD EPYC; ``make plan-check`` measures them again.
RECORD_US = 10.0
TABLE_US = 4.0
CANDIDATE_US = 5.0

#: Resemblances at which the recall of a MinHash design is shown.
CURVE = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)

#: Blocks beyond the Hamming distance that are offered: in one level, and in each of two.
_OUTER = (1, 2, 3, 4)
_TWO_LEVELS = ((1, 1), (1, 2), (2, 1))
_BAND_DESIGNS = 5


class Design(NamedTuple):
    """A table design.

    Attributes:
        name: in words.
        settings: what makes it, by setting name; 0 is the default.
        prefix_bits: bits of each table's prefix.
        recall: share found of the pairs at the limit, threshold or Hamming distance; for MinHash
            and SimHash together, of the pairs at the threshold by MinHash's tables alone.
        bands: the band design; None for SimHash.
    """

    name: str
    settings: dict[str, int]
    prefix_bits: tuple[int, ...]
    recall: float
    bands: BandDesign | None = None

    @property
    def tables(self) -> int:
        """Number of tables."""
        return len(self.prefix_bits)

    @property
    def has_blocks(self) -> bool:
        """Whether some of the tables are those of a SimHash."""
        return self.bands is None or self.tables > self.bands.bands

    def rates(self, threshold: float) -> Rates | None:
        """Return its error rates about a threshold; None for SimHash."""
        return error_rates(threshold, self.bands) if self.bands else None

    def recall_at(self, resemblance: float) -> float | None:
        """Return the share of pairs of this resemblance that it finds; None for SimHash."""
        return find_probability(resemblance, self.bands) if self.bands else None


class Load(NamedTuple):
    """What an index shall hold, and where.

    Attributes:
        originals: number of originals.
        sketch_bytes: bytes of a sketch, or of a payload with its length, and of a rank.
        id_bytes: bytes of a document id.
        memory: bytes that a shard may take (maxmemory).
        namespace: first part of every Redis key.
        ids: whether originals stand under their ids as well (``index_ids``).
    """

    originals: int
    sketch_bytes: int
    id_bytes: int = 20
    memory: int = 16_000_000_000
    namespace: str = "sd"
    ids: bool = False


class Plan(NamedTuple):
    """What a design takes under a load.

    Attributes:
        design: the design.
        candidates_per_probe: expected candidates that a table returns, for random fingerprints.
        candidates_per_document: the same over all tables.
        table_bytes: bytes of an original in the tables, that of the ids included.
        record_bytes: bytes of its record.
        memory: bytes of all originals.
        shards: servers that hold them, each filled to 80 %.
        partitions: hash tags.
        fullest_shard: share of the fullest shard when slots are split evenly; 1 is the mean.
        documents_per_second: originals per second and shard that its one busy core can take.
    """

    design: Design
    candidates_per_probe: float
    candidates_per_document: float
    table_bytes: float
    record_bytes: float
    memory: float
    shards: int
    partitions: int
    fullest_shard: float
    documents_per_second: float

    @property
    def bytes_per_original(self) -> float:
        """Bytes of an original, tables and record."""
        return self.table_bytes + self.record_bytes


def simhash_designs(hamming: int, bits: int = WORD_BITS) -> list[Design]:
    """Return the block designs for a Hamming distance, fewest tables first.

    One level, m blocks: C(m, k) tables, prefixes of m - k blocks. Two levels, m1 and m2 blocks:
    C(m1, k) C(m2, k) tables, prefixes of m1 - k blocks and m2 - k of the m2 that the other bits
    are cut into (Manku, Jain, Das Sarma 2007, section 3.1.1). Every pair within k is found.
    """
    if not hamming:  # the prefix is as long as it may be, whatever the blocks
        return [_block_design(0, 1, 0, bits)]
    shapes = [(hamming + extra, 0) for extra in _OUTER]
    shapes += [(hamming + outer, hamming + inner) for outer, inner in _TWO_LEVELS]
    designs = [
        _block_design(hamming, *shape, bits)
        for shape in shapes
        if count_tables(hamming, *shape) <= MAX_TABLES
    ]
    return sorted(designs, key=lambda design: design.tables)


def _block_design(hamming: int, blocks: int, inner: int, bits: int) -> Design:
    permutations = block_permutations(hamming, blocks, inner, bits)
    name = f"{blocks} x {inner} blocks" if inner else f"{blocks} block{'s' * (blocks > 1)}"
    prefix_bits = tuple(permutation.prefix_bits for permutation in permutations)
    is_default = not inner and (blocks == hamming + EXTRA_BLOCKS or not hamming)
    settings = {"blocks": 0 if is_default else blocks, "inner_blocks": inner}
    return Design(name, settings, prefix_bits, 1.0)


def minhash_designs(threshold: float, recall: float, values: int) -> list[Design]:
    """Return the band designs that reach the recall at the threshold, the most selective first.

    For r rows the fewest bands: b = ceil(log(1 - recall) / log(1 - threshold^r)), if b r values
    are there.

    Raises:
        SettingsError: there is no such design.
    """
    longest = design_bands(threshold, recall, values).rows
    designs = []
    for rows in range(longest, max(0, longest - _BAND_DESIGNS), -1):
        bands = design_rows(rows, threshold, recall, values)
        designs.append(
            Design(
                f"{bands.bands} band{'s' * (bands.bands > 1)} of {rows}",
                {"rows": 0 if rows == longest else rows},
                (MAX_PREFIX_BITS,) * bands.bands,
                find_probability(threshold, bands),
                bands,
            )
        )
    return designs


def fused_designs(bands: Sequence[Design], blocks: Sequence[Design]) -> list[Design]:
    """Return designs of MinHash's longest bands beside each of the block designs.

    Args:
        bands: band designs, the most selective first.
        blocks: block designs.
    """
    longest = bands[0]
    designs = [
        longest._replace(
            name=f"{longest.name}, {beside.name}",
            settings=longest.settings | beside.settings,
            prefix_bits=longest.prefix_bits + beside.prefix_bits,
        )
        for beside in blocks
    ]
    return [design for design in designs if design.tables <= MAX_TABLES]


def design_rows(rows: int, threshold: float, recall: float, values: int) -> BandDesign:
    """Return the fewest bands of so many rows that find ``recall`` of the pairs at ``threshold``.

    Raises:
        SettingsError: they need more values than there are.
    """
    for bands in range(1, values // rows + 1):
        design = BandDesign(bands, rows)
        if find_probability(threshold, design) >= recall:
            return design
    msg = (
        f"No number of bands of {rows} rows over {values} MinHash values finds {recall:.2%} of the "
        f"pairs at resemblance {threshold}. Lower rows or recall, or raise threshold."
    )
    raise SettingsError(msg)


def predict(design: Design, load: Load) -> Plan:
    """Predict what a design takes under a load.

    A probe of a prefix of p bits returns originals / 2^p candidates when fingerprints are random:
    2^(d - p) at 2^d originals (Manku, Jain, Das Sarma 2007, section 3.1).
    """
    candidates = sum(load.originals / 2.0**bits for bits in design.prefix_bits)
    shards = partitions = 1
    for _ in range(2):  # the number of partitions is part of each key, and follows from the bytes
        table_bytes = _table_bytes(design, load, partitions)
        record_bytes = _record_bytes(load, partitions)
        memory = (table_bytes + record_bytes) * load.originals
        shards = max(1, ceil(memory / (load.memory * FILL)))
        partitions = choose_partitions(shards)
    return Plan(
        design=design,
        candidates_per_probe=candidates / design.tables,
        candidates_per_document=candidates,
        table_bytes=table_bytes,
        record_bytes=record_bytes,
        memory=memory,
        shards=shards,
        partitions=partitions,
        fullest_shard=fullest_shard(partitions, shards),
        documents_per_second=1e6 / server_microseconds(design.tables, candidates),
    )


def _table_bytes(design: Design, load: Load, partitions: int) -> float:
    """Return the bytes of an original's entries: its share of a set in each table."""
    set_bits = layout_bits(load.originals)
    name = f"{_tag(load, partitions)}t00:{'0' * (-(-set_bits // 8) * 2)}"
    share = {}
    prefixes = (*design.prefix_bits, *([_ID_BITS] if load.ids else []))
    for bits in set(prefixes):
        named = min(bits, set_bits)
        members = load.originals / 2.0**named
        share[bits] = set_bytes(name, members, bits - named) / members
    return sum(share[bits] for bits in prefixes)


def _record_bytes(load: Load, partitions: int) -> float:
    """Return the bytes of an original's record: its share of a hash."""
    buckets = max(1, load.originals // (partitions * _RECORDS))
    fields = load.originals / (partitions * buckets)
    name = f"{_tag(load, partitions)}c{buckets - 1}"
    return hash_bytes(name, fields, record_value_bytes(load)) / fields


def record_value_bytes(load: Load) -> int:
    """Return the bytes of a record as it is stored: fate, head, sketch, id in MessagePack."""
    id_head = 1 if load.id_bytes < 32 else 2
    return _RECORD_BYTES + load.sketch_bytes + id_head + load.id_bytes


def _tag(load: Load, partitions: int) -> str:
    return f"{load.namespace}:{{{partitions - 1}}}:"


def layout_bits(originals: int) -> int:
    """Return the bits that name a sorted set, so that it holds about 16 members."""
    return min(max(1, round(log2(max(1.0, originals / _MEMBERS)))), _MOST_SET_BITS)


def server_microseconds(tables: int, candidates: float) -> float:
    """Return the server CPU time of an original, linear in its tables and candidates."""
    return RECORD_US + TABLE_US * tables + CANDIDATE_US * candidates


def choose_partitions(shards: int) -> int:
    """Return 16 or more partitions for each shard, a power of two; 1 when one shard is enough.

    Enough of them that the fullest shard is not over-full, as far as there may be so many.
    """
    if shards == 1:
        return 1
    wanted = max(_LEAST_PARTITIONS, 1 << (shards * _PARTITIONS_PER_SHARD - 1).bit_length())
    while wanted < _MOST_PARTITIONS and fullest_shard(wanted, shards) * FILL > 1.0:
        wanted *= 2
    return min(wanted, _MOST_PARTITIONS)


def fullest_shard(partitions: int, shards: int) -> float:
    """Return how much the fullest shard holds, in means, when the slots are split evenly.

    A hash tag's slot is the CRC-16 of its partition number, modulo 16384.
    """
    counts = [0] * shards
    for partition in range(partitions):
        slot = crc_hqx(b"%d" % partition, 0) % _CLUSTER_SLOTS
        counts[slot * shards // _CLUSTER_SLOTS] += 1
    return max(counts) * shards / partitions


def recommend(plans: Sequence[Plan], budget: float, max_candidates: int) -> tuple[int, str]:
    """Return the position of the plan to take, and the reason in a sentence.

    MinHash: the most selective, since bands return what resembles, not what collides by chance.
    With a SimHash: the least memory whose candidates stay within the budget for a document.
    """
    if not plans[0].design.has_blocks:
        return 0, _MINHASH_REASON
    fitting = [at for at, plan in enumerate(plans) if plan.candidates_per_document <= budget]
    if fitting:
        best = min(fitting, key=lambda at: plans[at].bytes_per_original)
        return best, (
            f"It takes the least memory of the designs that return at most {budget:g} candidates "
            "for a document."
        )
    best = min(range(len(plans)), key=lambda at: plans[at].candidates_per_document)
    reason = (
        f"No design returns at most {budget:g} candidates for a document; this one returns the "
        "fewest. A smaller Hamming distance or MinHash would return fewer."
    )
    if plans[best].candidates_per_document > max_candidates:
        reason += f" Cut at max_candidates, {max_candidates}, they would miss copies."
    return best, reason


_MINHASH_REASON = (
    "Its bands are the longest that reach the recall, so it returns the fewest candidates below "
    "the threshold; shorter bands take fewer tables and less memory."
)
