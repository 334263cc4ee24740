"""Checks of the settings against the plan: do memory, tables and shards fit what is expected?"""

from __future__ import annotations

from collections.abc import Iterator

from stream_dedup.doctor.findings import Finding, Level, check, hint, known, ok, warning
from stream_dedup.doctor.redis_facts import RedisFacts
from stream_dedup.doctor.words import readable_bytes as size
from stream_dedup.fingerprint.planned import planned
from stream_dedup.settings import Settings
from stream_dedup.tables.plan import FILL, choose_partitions, fullest_shard

#: Originals from which on the memory of one can be told from that of an empty server, and share of
#: those that are expected: before, keys have few entries each, and an entry takes more.
_ENOUGH, _ENOUGH_SHARE = 10_000, 0.5
#: Times the planned memory of an original.
_FAT = 1.5
#: Candidates of a document that meet it by chance: each is read and compared.
_MANY_CANDIDATES = 10.0
#: Fullest shard, in means, that a plan still takes.
_UNEVEN = 1 / FILL


@check(
    "plan.memory",
    Level.WARNING,
    remedy="`config set maxmemory`, more shards, a smaller `expected_originals`",
)
def memory(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """The originals that are expected fit into Redis's memory, with a fifth to spare."""
    plan = planned(settings)
    limits = [node.limit for node in facts.nodes]
    used = sum(node.used for node in facts.nodes)
    told = (
        f"{settings.expected_originals:,} originals take {size(plan.memory)}, "
        f"{plan.bytes_per_original:.0f} bytes each"
    )
    if not all(limits):
        yield ok(f"{told}; Redis has no limit to hold that to (redis.memory).")
        return
    count = len(limits)
    wanted = plan.memory * fullest_shard(settings.partitions, count) / count
    if wanted > FILL * min(limits):
        node = facts.nodes[limits.index(min(limits))]
        yield warning(
            f"{told}, up to {size(wanted)} on one node; {node.name} has {size(node.limit)}, of "
            f"which a plan fills {FILL:.0%}.",
            "Give it more, or take more shards",
            f"{node.cli} config set maxmemory {round(wanted / FILL) + 1}",
        )
        return
    room = max(0.0, (sum(limits) - used) / plan.bytes_per_original)
    yield ok(f"{told}, of {size(sum(limits))}. There is room for {room:,.0f} more.")


@check("plan.bytes", Level.HINT, remedy="`stream-dedup audit`, `stream-dedup sweep`")
def bytes_per_original(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """An original takes as much memory as planned."""
    count, plan = known(facts.originals), planned(settings)
    if count < max(_ENOUGH, _ENOUGH_SHARE * settings.expected_originals):
        yield ok(
            f"Planned are {plan.bytes_per_original:.0f} bytes an original; too few to compare."
        )
        return
    each = sum(node.used for node in facts.nodes) / count
    found = f"An original takes {each:.0f} bytes; {plan.bytes_per_original:.0f} are planned"
    if each > _FAT * plan.bytes_per_original:
        yield hint(
            f"{found}. Other data in this Redis counts too, and so do originals of long ids.",
            "Remove what has expired or was left behind",
            "stream-dedup sweep",
        )
    else:
        yield ok(f"{found}.")


@check("plan.candidates", Level.HINT, Level.WARNING, remedy="`stream-dedup plan`: other blocks")
def candidates(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """At the expected size a document meets few originals by chance."""
    plan = planned(settings)
    found = (
        f"At {settings.expected_originals:,} originals a document meets "
        f"{plan.candidates_per_document:.2g} of them by chance"
    )
    redo = f"stream-dedup plan --documents {settings.expected_originals} --method {settings.method}"
    if plan.candidates_per_document > settings.max_candidates:
        yield warning(
            f"{found}, more than it is compared with (max_candidates): copies are missed.",
            "Take longer prefixes for the next index",
            redo,
        )
    elif plan.candidates_per_document > _MANY_CANDIDATES:
        yield hint(f"{found}; each is read and compared.", "Compare other designs", redo)
    else:
        yield ok(f"{found}.")


@check("plan.partitions", Level.HINT, Level.WARNING, remedy="`partitions` of the next index")
def partitions(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """The index is spread over all nodes, and over no more hash tags than that takes."""
    count, shards = settings.partitions, len(facts.nodes)
    share = fullest_shard(count, shards)
    wanted = f"partitions = {choose_partitions(shards)}"
    if share > _UNEVEN:
        yield warning(
            f"{count} partition(s) on {shards} nodes: the fullest would hold {share:.2f} times the "
            "mean, with slots split evenly.",
            "Build the next index with more (stream-dedup rebuild)",
            wanted,
        )
    elif facts.cluster is None and count > 1:
        yield hint(
            f"{count} partitions on one node: each batch makes a call for each, and documents are "
            "registered in several steps.",
            "Build the next index with one, if it is to stay on one node (stream-dedup rebuild)",
            wanted,
        )
    else:
        yield ok(f"{count} partition(s) on {shards} node(s); the fullest holds {share:.2f} means.")


CHECKS = (memory, bytes_per_original, candidates, partitions)
