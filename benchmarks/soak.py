"""Does anything grow? Mixed traffic, lost connections and rebalances for an hour.

Two worker programs, one with each Kafka client, share a stream of documents, copies, tombstones,
hostile and large records. A third joins and leaves. Redis drops all connections now and then, and
the broker is killed and comes back. After a time to warm up memory, descriptors, threads, objects
and connections must stay what they are: the middle of their values in the last quarter is held to
that in the quarter around half-time. In the end the topics are read from their beginning: every
record must have been answered once. The program fails when one of these does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import redis

from benchmarks.endurance import Point, draw, growth_table, verdicts
from benchmarks.programs import Program, Stage, add_transports
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from benchmarks.tally import tally, tell, unread
from benchmarks.traffic import Message, Sender, mixed
from tests.services.errors import ServiceError

_MIB = 1024 * 1024
#: Seconds for the last records to come out: more than a group waits for a member that was lost.
_DRAIN_SECONDS = 400.0
#: Seconds for which the broker is away.
_AWAY_SECONDS = 5.0
#: Times that a minute is waited for its return.
_START_TRIES = 5


class Outcome(NamedTuple):
    """What became of it.

    Attributes:
        points: all samples.
        happened: counts of what was done and what came of it.
        wrong: what is not as it should be, in sentences.
    """

    points: list[Point]
    happened: Counter[str]
    wrong: list[str]


class Soak:
    """One run.

    Args:
        options: of the command line.
        stack: ends what is started.
    """

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self._options = options
        self._stage = Stage.set_up(stack, options.partitions, options.logs)
        self._redis = stack.enter_context(self._stage.server.client())
        self._stack = stack
        self._steady = [self._program(one, one) for one in options.transports]
        self._visitors = itertools.cycle(
            [self._program(one, f"visitor {one}") for one in options.transports]
        )
        self._visitor: Program | None = None
        self._happened: Counter[str] = Counter()
        self._points: list[Point] = []

    def run(self) -> Outcome:
        """Run to the end."""
        for program in self._steady:
            program.start()
        self._began = time.monotonic()
        ended = threading.Event()
        sender = Sender(self._stage.broker, self._stage.topics)
        producing = threading.Thread(
            target=sender.send,
            args=(mixed(self._options.seed), self._options.rate, lambda: not ended.is_set()),
            kwargs={"note": self._note},
            daemon=True,
        )
        producing.start()
        try:
            self._go_through()
        finally:
            ended.set()
        producing.join()
        wrong = self._drained(sender.sent)
        self._count()
        return Outcome(self._points, self._happened, wrong)

    def _program(self, transport: str, name: str) -> Program:
        program = Program(
            name,
            self._stage,
            transport,
            window=f"{self._options.window:g}s",
            lateness="60s",
            sweep_interval="60s",
        )
        self._stack.callback(program.end)
        return program

    def _note(self, message: Message) -> None:
        self._happened["records"] += 1
        self._happened["tombstones"] += message.value is None
        self._happened["hostile records"] += message.key.startswith(b"hostile")
        self._happened["large documents"] += message.key.startswith(b"large")

    def _go_through(self) -> None:
        """Do what is due, and look, until the time is over."""
        options = self._options
        due = {
            self._look: options.interval,
            self._visit: options.visit,
            self._drop_connections: options.drop,
            self._restart_broker: options.restart,
        }
        times = {act: self._began + every for act, every in due.items()}
        while (now := time.monotonic()) < self._began + 60 * options.minutes:
            act = min(times, key=lambda one: times[one])
            if times[act] > now:
                time.sleep(min(times[act] - now, 1.0))
                continue
            times[act] += due[act]
            act()

    def _look(self) -> None:
        at = time.monotonic() - self._began
        for program in self._steady:
            for whose, taken in program.footprints():
                values = {
                    "memory, MiB": taken.memory / _MIB,
                    "descriptors": taken.descriptors,
                    "threads": taken.threads,
                    "objects": taken.objects,
                }
                self._points += [
                    Point(at, whose, what, value)
                    for what, value in values.items()
                    if value is not None
                ]
        with suppress(redis.RedisError):
            clients, memory = self._redis.info("clients"), self._redis.info("memory")
            if self._visitor is None:  # a visitor has connections of its own
                count = clients["connected_clients"]
                self._points.append(Point(at, "both programs", "connections", count))
            self._points.append(Point(at, "Redis", "memory, MiB", memory["used_memory"] / _MIB))

    def _visit(self) -> None:
        """Let a program join, or leave if one is there: both are a rebalance."""
        if self._visitor is None:
            self._visitor = next(self._visitors)
            self._visitor.begin()
            self._happened["visits"] += 1
        else:
            self._visitor.end()
            self._visitor = None

    def _drop_connections(self) -> None:
        self._happened["connections of Redis dropped"] += self._redis.client_kill_filter(
            _type="normal", skipme=True
        )

    def _restart_broker(self) -> None:
        progress(f"{time.monotonic() - self._began:.0f} s: the broker is killed")
        self._stage.broker.kill()
        time.sleep(_AWAY_SECONDS)
        for _ in range(_START_TRIES):
            # A busy machine may need more than a minute for that; nobody is wrong then.
            with suppress(ServiceError):
                self._stage.broker.start()
                break
        self._happened["kills of the broker"] += 1

    def _drained(self, sent: int) -> list[str]:
        """Wait for the last records; say what is missing or doubled."""
        broker, topics = self._stage.broker, self._stage.topics
        deadline = time.monotonic() + _DRAIN_SECONDS
        while left := unread(broker, topics):
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        found = tally(broker, topics)
        for line in tell(broker, topics, found):
            progress(line)
        self._happened["dead letters"] = found.dead_letters
        counts = {
            "still unread": left,
            "in the input topic more or less than sent": abs(found.sent.total() - sent),
            "not answered": found.missing.total(),
            "answered twice": found.doubled.total(),
        }
        self._happened.update(counts)
        return [f"{count} records {name}" for name, count in counts.items() if count]

    def _count(self) -> None:
        for program in self._steady:
            self._happened["rebalances"] += int(program.total("rebalances_total"))
            self._happened["aborted batches"] += int(program.total("transaction_aborts_total"))
            self._happened["restarts of processes"] += int(program.total("worker_restarts_total"))


def measure(options: argparse.Namespace) -> Report:
    """Run it and report; end the program when something is wrong."""
    with ExitStack() as stack:
        outcome = Soak(options, stack).run()
    found = list(verdicts(outcome.points, 60 * options.minutes))
    if options.plot is not None:
        draw(outcome.points, options.plot)
    tables = [growth_table(found, options.minutes), _happened_table(outcome.happened, options)]
    report = Report("Soak", tables)
    wrong = [f"{one.what} of {one.whose} grew" for one in found if not one.kept] + outcome.wrong
    if outcome.happened["restarts of processes"]:
        wrong.append("a process was started again, so that its growth is not seen")
    if wrong:
        print(report.markdown())
        sys.exit("; ".join(wrong))
    return report


def _happened_table(happened: Counter[str], options: argparse.Namespace) -> Table:
    note = (
        f"Records at {options.rate:g} a second on {options.partitions} partitions; a third program "
        f"joined and left in turn every {options.visit:g} s; Redis dropped all connections every "
        f"{options.drop:g} s; the broker was killed every {options.restart:g} s, for "
        f"{_AWAY_SECONDS:g} s and its start. Of the two programs: rebalances, batches aborted and "
        "done again, processes that were started again."
    )
    rows: list[Row] = [[name, count] for name, count in happened.items()]
    return Table("What happened", note, columns("what", "count|,d"), rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long")
    parser.add_argument("--rate", type=float, default=300, help="records a second")
    parser.add_argument("--partitions", type=int, default=6, help="of each topic")
    parser.add_argument("--interval", type=float, default=5, help="seconds between samples")
    parser.add_argument("--visit", type=float, default=60, help="seconds until one joins or leaves")
    parser.add_argument("--drop", type=float, default=45, help="seconds between lost connections")
    parser.add_argument("--restart", type=float, default=420, help="seconds between broker kills")
    parser.add_argument("--window", type=float, default=600, help="seconds that originals count")
    parser.add_argument("--seed", type=int, default=1, help="of the traffic")
    parser.add_argument("--logs", type=Path, help="folder for what the programs say; is kept")
    parser.add_argument("--plot", type=Path, help="picture to write")
    add_transports(parser)
    run(parser, measure)


if __name__ == "__main__":
    main()
