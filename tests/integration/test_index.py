"""One contract, every index: each decision equals that of a brute-force model."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import adversarial
from stream_dedup import (
    Choice,
    ConfigurationMismatch,
    Deduplicator,
    Document,
    ServiceError,
    Settings,
    Status,
    VerifyBy,
)
from stream_dedup.index.redis import RedisIndex
from stream_dedup.verify.evidence import Evidence
from stream_dedup.verify.verifier import SketchVerifier
from tests.models.sequential import (
    answers_of,
    awkward_settings,
    awkward_stream,
    batches,
    decide_by_brute_force,
    verifying_settings,
)
from tests.services.redis import RedisServer

Make = Callable[[Settings], Deduplicator]


@pytest.fixture(params=["memory", "state", "redis", "cluster"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return what makes a deduplicator on one of the indexes; the same index at each call."""
    if request.param == "memory":
        return Deduplicator
    if request.param == "state":
        return lambda settings: Deduplicator(settings, state=tmp_path / "originals.db")
    url = request.getfixturevalue("redis_url" if request.param == "redis" else "redis_cluster_url")
    return lambda settings: on_redis(settings, url)


def on_redis(settings: Settings, url: str) -> Deduplicator:
    """Return a deduplicator on the Redis at ``url``."""
    settings = settings.model_copy(update={"redis_url": url})
    return Deduplicator(settings, index=RedisIndex.connect(settings))


@pytest.mark.parametrize("seed", range(40))
def test_every_decision_equals_that_of_brute_force(make: Make, seed: int) -> None:
    rng = random.Random(seed)
    settings = awkward_settings(rng)
    documents = awkward_stream(rng, rng.choice([5, 40, 160]))
    if rng.random() < 0.3:
        documents += documents

    with make(settings) as deduplicator:
        decided = [d for batch in batches(rng, documents) for d in deduplicator.decide(batch)]

    assert answers_of(decided) == decide_by_brute_force(settings, documents)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("verify_by", VerifyBy)
@pytest.mark.parametrize("choice", Choice)
def test_every_evidence_and_choice_decides_as_brute_force_does(
    make: Make, choice: Choice, verify_by: VerifyBy, seed: int, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(f"{choice} {verify_by} {seed}")
    settings = verifying_settings(rng, verify_by, choice)
    documents = awkward_stream(rng, 120)

    # A new deduplicator for each of the parts, so that what is kept is read back.
    parts = [documents] if "memory" in request.node.name else [documents[:70], documents[70:]]

    decided = []
    for part in parts:
        with make(settings) as deduplicator:
            decided += [d for batch in batches(rng, part) for d in deduplicator.decide(batch)]

    assert answers_of(decided) == decide_by_brute_force(settings, documents)


@pytest.mark.parametrize("verify_by", VerifyBy)
@pytest.mark.parametrize("choice", Choice)
def test_to_look_up_answers_as_a_claim_would(
    make: Make, choice: Choice, verify_by: VerifyBy
) -> None:
    rng = random.Random(f"look up {choice} {verify_by}")
    settings = verifying_settings(rng, verify_by, choice)
    documents = awkward_stream(rng, 80)

    with make(settings) as deduplicator:
        for document in documents:
            batch = deduplicator.prepare([document])
            looked_up = deduplicator.index.look_up(batch)

            assert looked_up == deduplicator.index.claim(batch)


@pytest.mark.parametrize("seed", range(5))
def test_documents_looked_up_together_are_each_looked_up_alone(make: Make, seed: int) -> None:
    rng = random.Random(2000 + seed)
    settings = awkward_settings(rng)
    documents = awkward_stream(rng, 160)
    with make(settings) as deduplicator:
        deduplicator.decide(documents[:100])
        batch = deduplicator.prepare(documents)

        together = deduplicator.index.look_up(batch)

        alone = [batch.rows(range(row, row + 1)) for row in range(len(batch))]
        assert together == [deduplicator.index.look_up(one)[0] for one in alone]


#: Candidates of a document: 2 of each of 16 keys, so that they are soon cut.
FEW = Settings(max_candidates=32, window=3_600.0)


def templates_and_recurrences(rng: random.Random, count: int) -> list[Document]:
    """Make documents that fill keys.

    Some are of one template, below the threshold to each other, and share a few keys; some repeat
    one of these with a word changed; and near copies of one text come again after every window, so
    that all of them are originals and share most of their keys.
    """
    words = [f"word{number}" for number in range(2_000)]
    template, again = rng.sample(words, 122), rng.sample(words, 150)
    filled: list[list[str]] = []
    documents, time = [], 0.0
    for number in range(count):
        kind = rng.choice(["template", "copy", "again", "soon"])
        if kind == "template" or not filled:
            text = [*template, *rng.sample(words, 28)]
            filled.append(text)
        elif kind == "copy":
            text = rng.choice(filled).copy()
            text[rng.randrange(len(text))] = "changed"
        else:
            time += 7_200.0 if kind == "again" else 60.0
            text = again.copy()
            text[rng.randrange(len(text))] = f"time{number}"
        documents.append(Document(number, " ".join(text), source=str(number), time=time))
    return documents


@pytest.mark.parametrize("seed", range(2))
def test_what_is_cut_is_the_same_on_every_index(make: Make, seed: int) -> None:
    documents = templates_and_recurrences(random.Random(seed), 160)
    settings = FEW.model_copy(update={"partitions": 1 + 6 * seed})
    expected = decide_by_brute_force(settings, documents, bounded=True)

    with make(settings) as deduplicator:
        decided = [deduplicator.decide([document])[0] for document in documents]
        batch = deduplicator.prepare(documents[-40:])
        together = deduplicator.index.look_up(batch)
        alone = [batch.rows(range(row, row + 1)) for row in range(len(batch))]

        assert together == [deduplicator.index.look_up(one)[0] for one in alone]
    assert answers_of(decided) == expected
    assert expected != decide_by_brute_force(settings, documents)


def test_documents_of_one_template_take_bounded_memory(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = adversarial.template(np.random.default_rng(1), 800)
    documents = [Document(n, text) for n, text in enumerate(adversarial.spell(words))]
    compared: list[int] = []

    def counting(self: SketchVerifier, left: Evidence, right: Evidence) -> Any:
        compared.append(len(left.sketches))
        return compare(self, left, right)

    compare = SketchVerifier.compare
    monkeypatch.setattr(SketchVerifier, "compare", counting)

    with make(Settings()) as deduplicator:
        decided = deduplicator.decide(documents[:500])
        compared.clear()
        tracemalloc.start()
        try:
            decided += deduplicator.decide(documents[500:])
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert {decision.status for decision in decided} == {Status.ORIGINAL}
    assert max(compared) <= 4_096
    # Each is compared with 256 of each key, and with those of its batch that are claimed with it.
    assert sum(compared) < 300 * (3 * 256 + 300)
    assert most < 32 * 2**20


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_that_comes_again_gets_the_same_answers(make: Make, seed: int) -> None:
    rng = random.Random(1000 + seed)
    settings = awkward_settings(rng).model_copy(update={"window": None})
    documents = awkward_stream(rng, 120)
    with make(settings) as deduplicator:
        first = [d for batch in batches(rng, documents) for d in deduplicator.decide(batch)]

        again = [d for batch in batches(rng, documents) for d in deduplicator.decide(batch)]

    assert again == first


def test_a_viral_post_adds_one_original(make: Make) -> None:
    text = " ".join(f"word{number}" for number in range(80))
    documents = [Document(number, text, source=str(number)) for number in range(3000)]

    with make(Settings()) as deduplicator:
        decided = deduplicator.decide(documents)

    assert decided[0].status is Status.ORIGINAL
    assert {d.status for d in decided[1:]} == {Status.EXACT_DUPLICATE}
    assert {d.duplicate_id for d in decided} == {decided[0].duplicate_id}


def test_an_index_outlives_the_deduplicator(make: Make, request: pytest.FixtureRequest) -> None:
    copies = [Document(name, "the same text in both of them", source=name) for name in "ab"]
    with make(Settings()) as deduplicator:
        deduplicator.decide(copies[:1])

    with make(Settings()) as deduplicator:
        decision = deduplicator.decide(copies[1:])[0]

    kept = "memory" not in request.node.name
    assert decision.status is (Status.EXACT_DUPLICATE if kept else Status.ORIGINAL)


def test_an_index_of_another_configuration_is_refused_with_a_sentence(redis_url: str) -> None:
    on_redis(Settings(), redis_url).close()

    sentence = (
        r"built with other settings \(configuration \w{16}, .*now configuration \w{16}, .*\)\. "
        r"What differs: threshold was 0\.8, is 0\.9\. Start with .*: stream-dedup rebuild"
    )
    with pytest.raises(ConfigurationMismatch, match=sentence):
        on_redis(Settings(threshold=0.9), redis_url)


def test_another_layout_of_the_same_configuration_is_refused(redis_url: str) -> None:
    on_redis(Settings(), redis_url).close()

    with pytest.raises(ConfigurationMismatch, match=r"differs: partitions was 1, is 4\."):
        on_redis(Settings(partitions=4), redis_url)


def test_two_namespaces_do_not_meet(redis_url: str) -> None:
    document = Document("a", "one text in two indexes of one server")
    statuses = []
    for namespace in ("one", "two"):
        with on_redis(Settings(redis_namespace=namespace), redis_url) as deduplicator:
            statuses.append(deduplicator.decide([document])[0].status)

    assert statuses == [Status.ORIGINAL, Status.ORIGINAL]


def test_out_of_memory_is_an_error_and_never_a_decision() -> None:
    rng = random.Random(1)
    texts = [" ".join(str(rng.random()) for _ in range(30)) for _ in range(5_000)]
    documents = [Document(number, text) for number, text in enumerate(texts)]

    with RedisServer(extra=("--maxmemory", "3mb")) as server:
        deduplicator = on_redis(Settings(), server.url)
        with deduplicator, pytest.raises(ServiceError, match="out of memory: raise maxmemory"):
            deduplicator.decide(documents)


def test_a_redis_out_of_reach_is_a_sentence() -> None:
    with pytest.raises(ServiceError, match=r"does not answer at redis://127.0.0.1:1/0.*Start it"):
        on_redis(Settings(), "redis://127.0.0.1:1/0")


def test_an_index_that_outgrows_its_layout_is_warned_of_once(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"text {number} of very many different ones" for number in range(1_300)]
    documents = [Document(number, text) for number, text in enumerate(texts)]

    with on_redis(Settings(expected_originals=1_000), redis_url) as deduplicator:
        for start in range(0, len(documents), 100):
            deduplicator.decide(documents[start : start + 100])

    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert "was laid out for 1000" in warnings[0]
