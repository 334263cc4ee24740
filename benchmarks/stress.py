"""Many workers, copies at the same moment, a Redis Cluster with replicas: does every promise hold?

Document i of a generated stream goes to worker i % N, and all workers keep in step, so that the
copies of a document are claimed side by side. Some records are given to a second worker as well. In
the end the index is audited, and the decisions are compared with the truth. The program fails when
anything is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.generate import GeneratedDocument, StreamShape, generate
from stream_dedup.index.audit import Audit, audit
from stream_dedup.index.audit_decisions import Published, Violation
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.types import Decision, Document, Status
from tests.services.redis import RedisCluster

#: Documents that a worker decides at a time, in step with the others.
BATCH = 100
#: One record in so many is decided by a second worker too.
REPLAYED = 50
#: Seconds that the workers wait for the slowest of them.
_PATIENCE = 120.0


class Record(msgspec.Struct, frozen=True):
    """A record for a worker.

    Attributes:
        source: where in the stream it stands.
        made: the document.
        again: whether another worker decides it too.
    """

    source: str
    made: GeneratedDocument
    again: bool = False


class Answer(msgspec.Struct, frozen=True):
    """A record and what was decided about it."""

    record: Record
    decision: Decision

    def published(self) -> Published:
        """Return it as the audit takes it."""
        return Published(self.record.source, _document(self.record), self.decision)


class Effort(msgspec.Struct, frozen=True):
    """What a worker did.

    Attributes:
        decided: documents.
        cpu: CPU seconds.
        seconds: by the clock.
        voided: claims of others that it voided.
        retried: attempts beyond the first.
    """

    decided: int
    cpu: float
    seconds: float
    voided: int
    retried: int


class Outcome(NamedTuple):
    """What became of a stream.

    Attributes:
        documents: in the stream.
        replayed: of these, decided by two workers.
        efforts: what each worker did.
        server_cpu: CPU seconds of all Redis nodes.
        audit: of the index and the decisions.
        wrong: groups and records that are not as the truth demands.
    """

    documents: int
    replayed: int
    efforts: list[Effort]
    server_cpu: float
    audit: Audit
    wrong: list[Violation]


def stress(documents: int, workers: int) -> Outcome:
    """Have workers decide a stream, and check what they did."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        progress(f"generating {documents:,} documents")
        replayed = share_out(documents, workers, folder)
        progress("starting 3 masters and 3 replicas")
        cluster = stack.enter_context(RedisCluster(replicas=1))
        settings = Settings(
            redis_url=cluster.url, partitions=48, expected_originals=max(documents, 1000)
        )
        before = _server_cpu(cluster)
        progress(f"{workers} workers decide")
        efforts = work(settings, workers, folder)
        server_cpu = _server_cpu(cluster) - before
        progress("auditing")
        clock = time.perf_counter()
        found = audit(settings, (one.published() for one in _first(answers(folder))))
        progress(f"audited in {time.perf_counter() - clock:.1f} s")
        wrong = [*check_groups(answers(folder)), *check_replays(answers(folder))]
        return Outcome(documents, replayed, efforts, server_cpu, found, wrong)


def share_out(documents: int, workers: int, folder: Path) -> int:
    """Write a file of records for each worker; return how many go to two of them.

    One changed word in 130 or more leaves also two copies of one original far above the threshold,
    so the truth demands the same groups whichever member comes first.
    """
    shape = StreamShape(
        documents=documents, duplicate_share=0.5, edits=1, words=200, distance=20, seed=21
    )
    replayed = 0
    with ExitStack() as stack:
        files = [stack.enter_context((folder / f"{n}.in").open("wb")) for n in range(workers)]
        for number, made in enumerate(generate(shape)):
            record = Record(f"stream/0/{number}", made)
            files[number % workers].write(msgspec.json.encode(record) + b"\n")
            if number % REPLAYED == 0:
                again = msgspec.json.encode(Record(record.source, made, again=True))
                # Not the next worker, whom the copies that follow at once go to.
                files[(number + workers // 2) % workers].write(again + b"\n")
                replayed += 1
    return replayed


def work(settings: Settings, workers: int, folder: Path) -> list[Effort]:
    """Run the workers, each a process, until all records are decided."""
    context = multiprocessing.get_context("spawn")
    counts = [_lines(folder / f"{number}.in") for number in range(workers)]
    rounds = -(-max(counts) // BATCH)
    barrier = context.Barrier(workers)
    processes = [
        context.Process(
            target=work_one, args=(settings, folder, number, rounds, barrier), daemon=True
        )
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = [process.exitcode for process in processes if process.exitcode]
    if failed:
        msg = f"{len(failed)} of {workers} workers failed; their messages stand above."
        raise RuntimeError(msg)
    decode = msgspec.json.Decoder(Effort).decode
    return [decode((folder / f"{number}.effort").read_bytes()) for number in range(workers)]


def work_one(settings: Settings, folder: Path, number: int, rounds: int, barrier: Barrier) -> None:
    """Decide the records of one worker, in step with the others."""
    decode = msgspec.json.Decoder(Record).decode
    decided = voided = retried = 0
    with ExitStack() as stack:
        lines = stack.enter_context((folder / f"{number}.in").open("rb"))
        out = stack.enter_context((folder / f"{number}.out").open("wb"))
        index = RedisIndex.connect(settings)
        deduplicator = stack.enter_context(Deduplicator(settings, index=index))
        barrier.wait(_PATIENCE)
        clock, cpu = time.perf_counter(), time.process_time()
        for _ in range(rounds):
            batch = [decode(line) for line in islice(lines, BATCH)]
            barrier.wait(_PATIENCE)
            decisions = deduplicator.decide([_document(record) for record in batch])
            answered = map(Answer, batch, decisions)
            out.writelines(msgspec.json.encode(answer) + b"\n" for answer in answered)
            decided += len(batch)
            voided += index.counts.voided
            retried += index.counts.retried
        seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
    effort = Effort(decided, cpu, seconds, voided, retried)
    (folder / f"{number}.effort").write_bytes(msgspec.json.encode(effort))


def answers(folder: Path) -> Iterator[Answer]:
    """Yield what all workers decided."""
    decode = msgspec.json.Decoder(Answer).decode
    for path in sorted(folder.glob("*.out")):
        with path.open("rb") as lines:
            yield from map(decode, lines)


def check_groups(decided: Iterator[Answer]) -> Iterator[Violation]:
    """Yield groups of the truth that have not one original and one name, or share a name."""
    names: dict[str, set[str]] = defaultdict(set)
    groups: dict[str, set[str]] = defaultdict(set)
    originals: Counter[str] = Counter()
    for answer in _first(decided):
        truth, decision = answer.record.made.truth, answer.decision
        group = truth.group if truth else ""
        names[group].add(decision.duplicate_id)
        groups[decision.duplicate_id].add(group)
        originals[group] += decision.status is Status.ORIGINAL
    for group, found in names.items():
        if len(found) != 1 or originals[group] != 1:
            detail = f"group {group} has {originals[group]} originals and {len(found)} names"
            yield Violation("truth", detail)
    for name, members in groups.items():
        if len(members) != 1:
            yield Violation("truth", f"{name} is the name of {len(members)} groups")


def check_replays(decided: Iterator[Answer]) -> Iterator[Violation]:
    """I3: yield records that two workers decided differently."""
    found: dict[str, set[tuple[Status, str]]] = defaultdict(set)
    for answer in decided:
        found[answer.record.source].add((answer.decision.status, answer.decision.duplicate_id))
    for source, different in found.items():
        if len(different) != 1:
            yield Violation("I3", f"{source} has {len(different)} answers")


def _first(decided: Iterator[Answer]) -> Iterator[Answer]:
    """Leave out what was decided again; a worker on Kafka would publish it once."""
    return (answer for answer in decided if not answer.record.again)


def _document(record: Record) -> Document:
    return Document(record.made.id, record.made.text, source=record.source)


def _lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def _server_cpu(cluster: RedisCluster) -> float:
    total = 0.0
    for node in cluster.nodes:
        with node.client() as client:
            info = client.info("cpu")
        total += info["used_cpu_user"] + info["used_cpu_sys"]
    return total


def measure(options: argparse.Namespace) -> Report:
    """Run it and report; end the program when something is wrong."""
    outcome = stress(options.documents, options.workers)
    wrong: Sequence[Violation] = [*outcome.audit.violations, *outcome.wrong]
    for violation in wrong[:20]:
        progress(f"{violation.invariant}: {violation.detail}")
    report = Report("Stress", [_table(outcome, options.workers)])
    if wrong:
        print(report.markdown())
        sys.exit(f"{len(wrong)} violations")
    return report


def _table(outcome: Outcome, workers: int) -> Table:
    note = (
        f"{outcome.documents:,} documents, half of them copies within 20 documents of their "
        f"original, decided by {workers} worker processes in step on a Redis Cluster of 3 masters "
        f"with a replica each, all on this machine; {outcome.replayed:,} of the records by two "
        f"workers. CPU time per document of the workers (fingerprints included) and of the six "
        "nodes; claims voided and attempts made again; what the audit compared and found, and "
        "groups or records that are not as the truth demands."
    )
    efforts = outcome.efforts
    decided = sum(effort.decided for effort in efforts)
    row: Row = [
        decided,
        decided / max(effort.seconds for effort in efforts),
        sum(effort.cpu for effort in efforts) / decided * 1e6,
        outcome.server_cpu / decided * 1e6,
        sum(effort.voided for effort in efforts),
        sum(effort.retried for effort in efforts),
        outcome.audit.originals,
        outcome.audit.decisions,
        len(outcome.audit.violations),
        len(outcome.wrong),
    ]
    header = columns("decided|,.0f", "documents/s|,.0f", "worker µs|.1f", "server µs|.1f")
    header += columns("voided|,.0f", "retried|,.0f", "originals|,.0f", "audited|,.0f")
    return Table("Claims", note, [*header, *columns("violations|,.0f", "wrong|,.0f")], [row])


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=200_000, help="documents in the stream")
    parser.add_argument("--workers", type=int, default=4, help="worker processes")
    run(parser, measure)


if __name__ == "__main__":
    main()
