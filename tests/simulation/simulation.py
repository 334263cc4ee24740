"""Puts real workers into a drawn world, breaks things, and looks at what is left.

A worker here is what ``stream_dedup_workers.annotate`` puts together: the index of Redis with its
deduplicator, ``KafkaTransport``, and ``Loop``. Only what they reach outside themselves through is
replaced: the clients of Kafka and Redis, the clock; and fingerprints are looked up.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from typing import NamedTuple
from unittest.mock import patch

from kafka.structs import TopicPartition  # type: ignore[import-untyped]
from stream_dedup_workers.annotate import CountedDeduplicator

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.collector import Circles
from stream_dedup.stream.decoding import Decoder
from stream_dedup.stream.kafka import KafkaTransport
from stream_dedup.stream.loop import Loop
from stream_dedup.stream.transport import Record
from stream_dedup.types import Decision, Document
from tests.simulation.broker import Broker, Entry
from tests.simulation.checks import Found, Place, documents, doubled, violations
from tests.simulation.clients import Client as Kafka
from tests.simulation.clients import Cluster
from tests.simulation.consumer import Consumer
from tests.simulation.faults import Faults, Rates
from tests.simulation.producer import Producer
from tests.simulation.redis import Client, Server
from tests.simulation.scheduler import CLOCK, Killed, Process, Scheduler
from tests.simulation.world import INPUT, RememberedLayout, World, fingerprinter, settings_of

#: Events after which a simulation is not believed to end.
PATIENCE = 8_000
#: Where the documents' texts, event times and waits come from in the modules that are simulated.
_CLOCKS = (
    "stream_dedup.stream.kafka",
    "stream_dedup.stream.transactional",
    "stream_dedup.index.clock",
    "stream_dedup.index.driver",
    "stream_dedup.index.watermark",
    "stream_dedup.outage",
)


class Parts(NamedTuple):
    """What a worker is made of; a broken worker has another one of these.

    Attributes:
        transport: publishes.
        deduplicator: decides.
        loop: turns.
        patched: what else is different: a name within a module, and what stands there instead.
    """

    transport: type[KafkaTransport] = KafkaTransport
    deduplicator: type[CountedDeduplicator] = CountedDeduplicator
    loop: type[Loop] = Loop
    patched: tuple[tuple[str, object], ...] = ()


class Result(NamedTuple):
    """What became of one seed.

    Attributes:
        violations: what does not hold, in words.
        events: how often what came about.
        steps: events of the scheduler.
        records: input records.
        trace: what happened, if it was asked for.
    """

    violations: list[str]
    events: Counter[str]
    steps: int
    records: int
    trace: list[str]


class _NoCircles(Circles):
    """Looks for none."""

    def note(self, size: int) -> None:
        """Do nothing."""


@contextmanager
def simulated(parts: Parts) -> Iterator[None]:
    """Let the workers' code meet the simulated world."""
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        for module in _CLOCKS:
            stack.enter_context(patch(f"{module}.time", CLOCK))
        replaced = {
            "stream_dedup.stream.kafka_clients.KafkaConsumer": Consumer,
            "stream_dedup.stream.kafka_clients.KafkaProducer": Producer,
            # The simulated client has no batches to unpack.
            "stream_dedup.stream.kafka_clients.bound": lambda consumer, _limit: consumer,
            "stream_dedup.index.redis.connect": lambda _settings: Client(_Running.server),
            "stream_dedup.index.redis.Layout": RememberedLayout,
            "stream_dedup.stream.loop.Decoder": _decoder,
            # A thread of its own for a call would be outside of the scheduler; the simulated client
            # ends its calls in time.
            # They are asked by a connection of its own.
            "stream_dedup.stream.transactional.read_limits": lambda _settings, _topics: {},
            "stream_dedup.stream.kafka.bounded": lambda _name, call, *_limits: call(),
            # A seed has next to nothing to collect, and tens of thousands of them have no time.
            "stream_dedup.stream.transactional.Circles": _NoCircles,
            # Looks for what is wrong by a connection of its own.
            "stream_dedup.stream.kafka_trouble.kafka_trouble": lambda _settings, _error: "",
            "stream_dedup.index.redis.Fingerprinter": _remembered,
            "stream_dedup.deduplicator.Fingerprinter": _remembered,
            **dict(parts.patched),
        }
        for name, stand_in in replaced.items():
            stack.enter_context(patch(name, stand_in))
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


class _Running:
    """The Redis of the simulation that runs."""

    server: Server


@lru_cache(maxsize=16)
def _decoder_of(method: object) -> Decoder:  # all that it goes by is the same for all worlds
    return Decoder(settings_of(0 if method == settings_of(0).method else 1))


def _decoder(settings: Settings) -> Decoder:
    return _decoder_of(settings.method)


def _remembered(settings: Settings) -> object:
    return fingerprinter(0 if settings.method == settings_of(0).method else 1)


class Simulation:
    """One seed; must be run within ``simulated``."""

    def __init__(self, seed: int, parts: Parts, *, trace: bool = False) -> None:
        self.scheduler = Scheduler(seed, trace=trace)
        rng = self.scheduler.rng
        self.world = World.draw(rng)
        rates = Rates.draw(rng)
        self.faults = Faults(self.scheduler, rates, rng.randrange(50, 600))
        self.broker = Broker(
            self.scheduler,
            self.faults,
            len(self.world.logs),
            self.world.settings.transaction_timeout,
        )
        self.server = Server(self.scheduler, self.faults)
        self._parts = parts
        #: Whether Redis is to lose nothing; else only messages are promised.
        self._durable = not (rates.loss or rates.rollback)
        #: When each document was begun to be decided for the last time, by partition and offset.
        self._begun: dict[str, float] = {}
        self._undecided: list[str] = []
        self._running: Counter[int] = Counter()
        self._lives = 0
        self._batch = self.world.settings.batch_documents
        self._group = self.world.settings.group
        self._kills = {
            str(one.id) for log in self.world.logs for one in log if one is not None and one.kills
        }
        #: Lives that had a record to themselves, by its place.
        self._alone: dict[Place, set[str]] = defaultdict(set)
        quiet = not self.world.forgets and not self._kills
        self._replays = self._durable and quiet and rng.random() < 0.25
        self.faults.step_redis = self._step_redis
        self._connect()
        self._fill_input()
        for moment in range(1, 8):
            self.scheduler.after(moment * rng.uniform(2, 20), self._keep_house)

    def run(self) -> Result:
        """Let all workers go on until everything is answered, and once more with a new group."""
        for number in range(self.world.workers):
            self._begin(number, self.scheduler.rng.choice((0.0, 0.0, 1.0, 6.0)))
        ended = self.scheduler.run(PATIENCE)
        found = self._found()
        wrong = [] if ended else [f"no end after {PATIENCE} steps"]
        in_order = self._is_in_order()
        wrong += violations(self.world, found, durable=self._durable, in_order=in_order)
        self._count_given_up(found)
        wrong += self._undecided
        if self.server.rolled_back >= 0:
            begun = {place for place, at in self._begun.items() if at > self.server.rolled_back}
            wrong += doubled(self.world, found, begun)
        steps = self.scheduler.steps
        if not wrong and self._replays:
            wrong = self._run_again(found)
        if self._replays:
            self.scheduler.note("stream came again")
        trace = self.scheduler.trace or []
        records = sum(one is not None for log in self.world.logs for one in log)
        events = self.scheduler.events + self.server.functions.events
        return Result(wrong, events, steps, records, trace)

    def _count_given_up(self, found: Found) -> None:
        inputs = documents(self.world)
        for place in found.given_up():
            kills = inputs[place].kills
            self.scheduler.note("culprit given up" if kills else "harmless record given up")

    def _is_in_order(self) -> bool:
        """Whether no part of an attempt that was given up was carried out after the next."""
        disorder = ("late repeated call", "pause", "heartbeats lost")
        return self.world.workers == 1 and not any(map(self.scheduler.events.get, disorder))

    def _run_again(self, first: Found) -> list[str]:
        """Let one worker of another group read everything again, in peace, on the same index."""
        self.scheduler.steps = 0
        self.faults.calm()
        self._group, self._batch = "again", 100
        before = {id(entry) for entry in first.outputs}
        self._begin(99, 0.0)
        if not self.scheduler.run(PATIENCE):
            return ["the stream does not end when it comes again"]
        outputs = [entry for entry in self._found().outputs if id(entry) not in before]
        again = first._replace(outputs=outputs)
        return again.differences(self.world, first)

    def _found(self) -> Found:
        settings = self.world.settings
        return Found(
            outputs=self.broker.visible(settings.output_topic),
            letters=self.broker.visible(settings.dead_letter_topic),
            offsets={
                partition.partition: offset
                for partition, offset in self.broker.offsets[self._group].items()
            },
            tables=self.server.functions.tables,
            is_open=self.broker.has_open(),
            alone={place: len(lives) for place, lives in self._alone.items()},
        )

    def _connect(self) -> None:
        CLOCK.scheduler = self.scheduler
        _Running.server = self.server
        Kafka.cluster = Cluster(self.broker, {}, INPUT)

    def _fill_input(self) -> None:
        """Write the input, some of it later."""
        rng = self.scheduler.rng
        for number, log in enumerate(self.world.logs):
            partition = TopicPartition(INPUT, number)
            moment = 0.0
            for one in log:
                if rng.random() < 0.1:
                    moment += rng.choice((0.5, 5.0, 20.0))
                entry = one and Entry(one.key, one.value, [], 1_699_999_999_000)
                if moment:
                    self.scheduler.after(moment, partial(self.broker.logs[partition].append, entry))
                else:
                    self.broker.logs[partition].append(entry)

    def _keep_house(self) -> None:
        """Sweep, now and then; and write a snapshot, which may be brought back."""
        layout = self.world.settings
        prefixes = [
            f"{layout.redis_namespace}:{{{number}}}:".encode()
            for number in range(layout.partitions)
        ]
        self.server.functions.sweep(prefixes, self.server.time(), layout.longest_attempt)
        self.server.write_down()

    def _step_redis(self, seconds: float) -> None:
        self.server.skew += seconds

    def _is_done(self) -> bool:
        """Whether every record is answered, as far as the group says."""
        offsets = self.broker.offsets[self._group]
        for number, log in enumerate(self.world.logs):
            wanted = max((at + 1 for at, one in enumerate(log) if one is not None), default=0)
            if offsets.get(TopicPartition(INPUT, number), 0) < wanted:
                return False
        return True

    def _begin(self, number: int, delay: float) -> None:
        """Let a life of a worker process begin."""
        self._lives += 1
        skew = self.scheduler.rng.choice((0.0, 0.0, -30.0, 30.0))
        process = Process(f"w{number}.{self._lives}", skew)
        process.told.append(lambda seconds: self._on_pause(number, seconds))
        self._running[number] += 1
        consumers: list[Consumer] = []

        def ended() -> None:
            self._running[number] -= 1
            for consumer in consumers:
                consumer.end_session()
            if not self._running[number] and not self._is_done():
                self._begin(number, self.scheduler.rng.choice((0.1, 2.0, 15.0)))

        self.scheduler.start(process, lambda: self._live(number, consumers), ended, delay)

    def _on_pause(self, number: int, seconds: float) -> None:
        """Take a stopped process for dead, now and then, though it may go on."""
        if seconds > 20 and self.scheduler.chance(0.3):
            self.scheduler.note("second life beside the first")
            self._begin(number, 1.0)

    def _live(self, number: int, consumers: list[Consumer]) -> None:
        """Do what ``annotate._work`` does."""
        settings = self.world.settings.model_copy(
            update={"group": self._group, "batch_documents": self._batch}
        )
        parts = self._parts
        life = self._lives
        stops = self.scheduler.chance(0.05)
        until = self.scheduler.now + 30
        try:
            deduplicator = parts.deduplicator(settings)
            transport = parts.transport(settings, f"worker-{number}")
            self._watch(transport, deduplicator)
            consumers.append(transport._consumer)
            self.scheduler.note("started", life)

            def stopping() -> bool:
                return self._is_done() or (stops and self.scheduler.now > until)

            try:
                parts.loop(settings, transport, deduplicator, CLOCK, stopping=stopping).run()
            except ServiceError:
                transport.unmark()
                raise
            transport.unmark()
            transport.close()
            deduplicator.close()
            self.scheduler.note("stopped")
        except ServiceError:
            self.scheduler.note("gave up")
        except Exception as error:  # noqa: BLE001 - whatever it is, the process is started again
            self.scheduler.note("died", repr(error))

    def _watch(self, transport: KafkaTransport, deduplicator: CountedDeduplicator) -> None:
        """Note which records a life has to itself, and when documents are begun to be decided.

        Lets a life end at some of them.
        """
        alone, decide = transport._alone, deduplicator.decide
        process = self.scheduler.current
        assert process is not None

        def marked(records: Sequence[Record]) -> Sequence[Record]:
            if len(records) == 1:
                self._alone[records[0].partition, records[0].offset].add(process.name)
            return alone(records)

        def decided(documents: Sequence[Document]) -> list[Decision]:
            self._begun |= dict.fromkeys(
                (one.source or "" for one in documents), self.scheduler.now
            )
            if any(document.id in self._kills for document in documents):
                self.scheduler.note("culprit met", len(documents))
                if self.scheduler.chance(0.3):  # it hangs, until the supervisor ends it
                    self.scheduler.sleep(90)
                process.dead = True
                raise Killed
            try:
                return decide(documents)
            except ServiceError as error:
                if "were not decided" in str(error):
                    self._undecided.append(f"progress: {error}")
                raise

        transport._alone, deduplicator.decide = marked, decided  # type: ignore[method-assign]


def simulate(seed: int, parts: Parts | None = None, *, trace: bool = False) -> Result:
    """Run one seed.

    Args:
        seed: everything follows from it.
        parts: what the workers are made of; the real ones if left out.
        trace: whether to write down what happens.
    """
    parts = parts or Parts()
    with simulated(parts):
        return Simulation(seed, parts, trace=trace).run()


def simulate_all(seeds: Iterable[int], parts: Parts | None = None) -> Iterator[tuple[int, Result]]:
    """Run many seeds, and yield each with what became of it."""
    parts = parts or Parts()
    with simulated(parts):
        gc.disable()  # a seed leaves some circles, and nothing else that could be found
        try:
            for number, seed in enumerate(seeds, 1):
                yield seed, Simulation(seed, parts).run()
                if number % 50 == 0:
                    gc.collect(1)
        finally:
            gc.enable()
