"""What duplicate groups cost: a worker's message for a member, folding it, and a state's bytes.

Run: python -m benchmarks.groups
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from kafka import KafkaProducer  # type: ignore[import-untyped]

from benchmarks.processes import one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.groups import Group, Limits, Member, encode
from stream_dedup.index.group_store import GroupStore
from stream_dedup.settings import Settings
from stream_dedup.stream.answers import member as tell
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.grouping import GroupLoop, settings_of_groups
from stream_dedup.stream.keeper import keeper_of
from stream_dedup.stream.transport import Record
from stream_dedup.types import Decision, Document, Method, Status
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

PARTITIONS = 4
#: Duplicates of a group, on average, where there are many.
COPIES = 4
#: Copies of one post, at which the size of its state is looked at.
VIRAL = (10, 100, 1_000, 10_000, 100_000)


def decided(number: int, group: int) -> tuple[Document, Decision]:
    """Return a duplicate as a worker has it."""
    document = Document(
        f"post-{number:09}", "", 1.7e9 + number, origin=f"site-{number * number % 997:03}.example"
    )
    name = f"{group * 2654435761 % 2**32:08x}{group:016x}"
    decision = Decision(
        Status.NEAR_DUPLICATE, name, f"post-{group:09}", Method.MINHASH, "f" * 16, similarity=0.8984
    )
    return document, decision


def members(count: int, groups: int) -> Iterator[Member]:
    """Draw members of so many groups."""
    rng = random.Random(1)
    for number in range(count):
        yield Member.of(*decided(number, rng.randrange(groups)))


def telling(count: int) -> float:
    """Return the microseconds that a worker takes to write a member's message."""

    class Place:
        topic, partition, offset = "documents", 0, 0

    record: Record = Place()  # type: ignore[assignment]
    pairs = [decided(number, number) for number in range(count)]
    began = time.process_time()
    for document, decision in pairs:
        tell("documents.members", record, document, decision)
    return (time.process_time() - began) / count * 1e6


def viral_bytes() -> list[int]:
    """Return how long the state of one group is, with more and more copies."""
    sizes, limits = [], Limits(Settings().group_members, Settings().group_sources)
    group: Group | None = None
    for number in range(max(VIRAL)):
        one = Member.of(*decided(number, 1))
        group = group or Group.begin(one)
        group.apply(one, 0, number, limits)
        if number + 1 in VIRAL:
            sizes.append(len(encode(group)))
    return sizes


@contextmanager
def filled(kafka: KafkaBroker, redis: RedisServer, count: int, groups: int) -> Iterator[Settings]:
    """Give settings whose members topic has so many members of so many groups."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    kafka.create([f"{name}.members", f"{name}.dead-letter"], PARTITIONS)
    kafka.create([f"{name}.groups"], PARTITIONS, cleanup_policy="compact")
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)) as producer:
        for one in members(count, groups):
            producer.send(f"{name}.members", encode(one), one.duplicate_id.encode())
    redis.flush()
    yield settings_of_groups(
        Settings(
            kafka_bootstrap=kafka.bootstrap,
            redis_url=redis.url,
            members_topic=f"{name}.members",
            groups_topic=f"{name}.groups",
            dead_letter_topic=f"{name}.dead-letter",
            group=name,
        )
    )


def fold(settings: Settings, redis: RedisServer, count: int) -> tuple[float, float, float]:
    """Fold everything; return seconds by the clock, of this process's CPU, and of Redis's."""
    with ExitStack() as stack:
        store = stack.enter_context(closing(GroupStore.connect(settings)))
        keeper = keeper_of(settings, store, time)
        keeper.open()
        transport = stack.enter_context(closing(open_transport(settings, settings.group)))
        loop = GroupLoop(settings, transport, keeper, time)
        done = 0
        while not done:  # the group settles, the first batch is slow
            done = loop.step()
        first = done
        began, used, served = time.perf_counter(), time.process_time(), server_cpu(redis)
        while done < count:
            done += loop.step()
        share = count / (count - first)
        return (
            (time.perf_counter() - began) * share,
            (time.process_time() - used) * share,
            (server_cpu(redis) - served) * share,
        )


def server_cpu(redis: RedisServer) -> float:
    """Return the seconds of CPU time that Redis has used."""
    with redis.client() as client:
        facts = client.info("cpu")
    return float(facts["used_cpu_user"] + facts["used_cpu_sys"])


def state_bytes(redis: RedisServer) -> tuple[float, float]:
    """Return the mean bytes of a state, and of all that Redis keeps for it."""
    with redis.client() as client:
        keys = list(client.scan_iter(match="sd:*:g?*", count=1000))
        chosen = random.Random(1).sample(keys, min(len(keys), 1000))
        lengths = [client.strlen(key) for key in chosen]
        memory = [client.memory_usage(key) or 0 for key in chosen]
    return statistics.fmean(lengths), statistics.fmean(memory)


def folding(count: int) -> Table:
    """Measure both transports with many groups, and with a single one."""
    rows: list[Row] = []
    with KafkaBroker() as kafka, RedisServer() as redis:
        for transport in ("kafka-python", "confluent"):
            for groups in (count // COPIES, 1):
                progress(f"{count:,} members of {groups:,} groups, {transport}")
                with filled(kafka, redis, count, groups) as plain:
                    settings = plain.model_copy(update={"transport": transport})
                    taken = fold(settings, redis, count)
                    sizes = state_bytes(redis)
                rates = (count / taken[1], count / taken[0])
                rows.append([transport, groups, *rates, taken[2] / count * 1e6, *sizes])
    header = columns("transport", "groups|,d", "members/s of CPU time|,.0f", "by the clock|,.0f")
    header += columns("µs of Redis/member|,.1f", "bytes/state|,.0f", "bytes in Redis|,.0f")
    note = (
        f"{count:,} members, folded and published by one process of `stream-dedup groups`, in "
        "batches of up to 1,000. The fewer members of one group are in a batch, the more states "
        "are read, put and published."
    )
    return Table("Members to groups", note, header, rows)


def measure(options: argparse.Namespace) -> Report:
    """Measure what a worker and a state take, then the folding."""
    with one_cpu():
        told = telling(100_000)
    note = (
        f"A worker takes {told:.1f} µs of CPU time to write a member's message, before the client."
    )
    header = columns("copies of one post|,d", "bytes of its state|,d")
    rows: list[Row] = [list(row) for row in zip(VIRAL, viral_bytes(), strict=True)]
    return Report("Groups", [Table("A viral group", note, header, rows), folding(options.members)])


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--members", type=int, default=100_000, help="members to fold")
    run(parser, measure)


if __name__ == "__main__":
    main()
