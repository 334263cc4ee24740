"""The HTTP service, in one process and on a memory index."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from stream_dedup import Deduplicator, Document, ServiceError, Settings
from stream_dedup.index.base import LookUp
from stream_dedup.query import Answer, Query, Question
from stream_dedup.serve import lane, source
from stream_dedup.serve.app import make_app
from stream_dedup.serve.groups import Groups
from stream_dedup.serve.lane import Busy, Lane
from stream_dedup.serve.source import Source

STORY = " ".join(f"word{number}" for number in range(100))
NEAR = STORY.replace("word50", "changed")
AWAY = "Redis does not answer. Start it."
SETTINGS = Settings(serve_documents=40, serve_bytes=20_000, max_characters=5_000)


def memory(settings: Settings = SETTINGS) -> LookUp:
    deduplicator = Deduplicator(settings)
    deduplicator.decide([Document(7, STORY, time=0.0)])
    return deduplicator.index


@contextmanager
def service(
    settings: Settings = SETTINGS, open_index: Callable[[], LookUp] = memory, token: str = ""
) -> Iterator[TestClient]:
    app = make_app(settings, Source(settings, open_index), token)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client() -> Iterator[TestClient]:
    with service() as client:
        yield client


def query(client: TestClient, body: Any, status: int = 200) -> dict[str, Any]:
    response = client.post("/v1/query", json=body)
    assert response.status_code == status, response.text
    kind = "application/json" if status == 200 else "application/problem+json"
    assert response.headers["content-type"] == kind
    found: dict[str, Any] = response.json()
    return found


class TestGroups:
    NAME = "0123456789abcdef01234567"

    def test_beside_a_state_file_there_are_none(self, client: TestClient) -> None:
        missing = client.get(f"/v1/groups/{self.NAME}")

        assert missing.status_code == 404
        assert "this server asks a state file" in missing.json()["detail"]

    @pytest.mark.parametrize("name", ["a", "A" * 24, "0" * 25, "0" * 23 + "%0A"])
    def test_what_is_no_name_is_refused(self, client: TestClient, name: str) -> None:
        assert client.get(f"/v1/groups/{name}").status_code == 422

    def test_a_redis_that_comes_back_is_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tries = []

        class View:
            def look_up(self, duplicate_id: str) -> bytes | None:
                tries.append(duplicate_id)
                if len(tries) == 1:
                    raise ServiceError(AWAY)
                return b"{}"

            def close(self) -> None:
                tries.append("closed")

        app = make_app(SETTINGS, Source(SETTINGS, memory), "secret", Groups(View))
        with TestClient(app) as client:
            path, token = f"/v1/groups/{self.NAME}", {"Authorization": "Bearer secret"}
            assert client.get(path).status_code == 401
            away = [client.get(path, headers=token) for _ in range(2)]
            monkeypatch.setattr("stream_dedup.serve.groups.PAUSE", 0.0)
            found = client.get(path, headers=token)

        assert [response.status_code for response in away] == [503, 503]
        assert away[1].json()["detail"].startswith(AWAY)
        assert away[1].headers["retry-after"]
        assert (found.status_code, found.json()) == (200, {})
        assert tries == [self.NAME, self.NAME, "closed"]


class TestQuery:
    def test_a_new_text(self, client: TestClient) -> None:
        assert query(client, {"text": "something else"}) == {
            "known": False,
            "status": "new",
            "method": "minhash",
            "configuration": Query(SETTINGS, memory()).configuration,
        }

    def test_a_near_copy(self, client: TestClient) -> None:
        found = query(client, {"text": NEAR, "id": "mine"})

        assert found["id"] == "mine"
        assert found["known"]
        assert found["status"] == "near_duplicate"
        assert found["original_id"] == 7
        assert 0.8 <= found["similarity"] < 1
        assert len(found["duplicate_id"]) == 24
        assert "why" not in found

    def test_an_exact_copy(self, client: TestClient) -> None:
        found = query(client, {"text": STORY.upper()})

        assert (found["status"], found["similarity"]) == ("exact_duplicate", 1.0)

    def test_why(self, client: TestClient) -> None:
        why = query(client, {"text": NEAR, "explain": True})["why"]

        assert why["reason"].startswith(f"They share {why['tables_hit']} table keys and the est")
        assert why["tables"] == 16
        (candidate,) = why["candidates"]
        assert (candidate["original_id"], candidate["near"]) == (7, True)

    def test_why_not(self, client: TestClient) -> None:
        part = " ".join(STORY.split()[:70])

        found = query(client, {"text": part, "explain": True})
        unlike = query(client, {"text": "something else", "explain": True})["why"]
        empty = query(client, {"text": " ", "explain": True})["why"]

        assert not found["known"]
        assert found["why"]["reason"].endswith("is below the threshold 0.8: no match.")
        assert unlike["reason"] == "No original shares a table key with this document."
        assert empty["reason"].startswith("A text with nothing left")

    def test_a_batch_is_answered_in_order_and_not_compared_with_itself(
        self, client: TestClient
    ) -> None:
        documents = [{"text": "new"}, {"text": NEAR, "id": 1}, {"text": "new", "id": "1"}] * 13

        answers = query(client, {"documents": documents})["answers"]

        assert [answer["status"] for answer in answers] == ["new", "near_duplicate", "new"] * 13
        assert [answer.get("id") for answer in answers] == [None, 1, "1"] * 13
        assert query(client, {"documents": []}) == {"answers": []}

    def test_nothing_is_registered(self, client: TestClient) -> None:
        for _ in range(2):
            assert query(client, {"text": "asked about twice, no more"})["status"] == "new"

    @pytest.mark.parametrize(
        ("time", "status"),
        [
            ("1970-01-01T00:00:20Z", "exact_duplicate"),
            (20, "exact_duplicate"),
            ("1970-01-01T00:01:00Z", "new"),
            (None, "new"),
        ],
    )
    def test_a_window_counts_from_the_time_or_from_now(self, time: object, status: str) -> None:
        settings = Settings(window=30.0)
        with service(settings, lambda: memory(settings)) as client:
            assert query(client, {"text": STORY, "time": time})["status"] == status


class TestProblems:
    @pytest.mark.parametrize(
        ("body", "status", "detail"),
        [
            ({}, 422, "body.text: Field required."),
            ([STORY], 422, "body: Input should be a valid dictionary"),
            ({"text": 7}, 422, "body.text: Input should be a valid string."),
            ({"text": "a", "id": True}, 422, "body.id"),
            ({"text": "a", "more": 1}, 422, "body.more: Extra inputs"),
            ({"documents": [{"id": 1}]}, 422, "body.documents.0.text: Field required."),
            ({"text": "a", "time": "2026-01-01"}, 422, "body.time"),
            ({"documents": [1] * 5_000}, 422, "body.documents.0: Input should be"),
            ({"documents": [{}] * 5_000}, 422, "body.documents.0.text: Field required."),
            (dict.fromkeys(map(str, range(1_000)), 1), 422, "it has 1000 fields."),
            ({"documents": [dict.fromkeys(map(str, range(99)))]}, 422, "it has 99 fields."),
            ({"documents": [{"text": "a"}] * 41}, 413, "may have 40 documents and this one has 41"),
            ({"text": "a" * 5_001}, 413, "A text may have 5000 characters and one has 5001."),
            ({"text": "a" * 30_000}, 413, "A body may have 20000 bytes and this one has more."),
        ],
    )
    def test_a_bad_request_is_told(
        self, client: TestClient, body: Any, status: int, detail: str
    ) -> None:
        problem = query(client, body, status)

        assert problem["status"] == status
        assert detail in problem["detail"]
        assert len(problem.get("errors", ())) <= 2
        assert problem["detail"].endswith(("See /openapi.json for what to send.", "at once."))

    def test_what_is_no_json_is_told(self, client: TestClient) -> None:
        headers = {"Content-Type": "application/json"}
        for content, status in ((b"text", 422), (b"\xff", 400), (b"[" * 19_000, 400)):
            response = client.post("/v1/query", content=content, headers=headers)

            assert response.status_code == status
            assert response.headers["content-type"] == "application/problem+json"

    def test_a_body_without_a_length_is_limited_too(self, client: TestClient) -> None:
        response = client.post(
            "/v1/query",
            content=iter([b'{"text": "'] + [b"a" * 1_000] * 30),
            headers={"Content-Type": "application/json"},
        )

        assert response.status_code == 413
        assert response.json()["title"] == "Too large"

    def test_a_path_or_a_method_that_there_is_not(self, client: TestClient) -> None:
        for response, status in ((client.get("/v2"), 404), (client.get("/v1/query"), 405)):
            assert response.status_code == response.json()["status"] == status
            assert "See /openapi.json" in response.json()["detail"]

    def test_an_error_of_our_own_tells_nothing_inside(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_self: Query, _questions: Sequence[Question]) -> list[Answer]:
            msg = "inside"
            raise KeyError(msg)

        monkeypatch.setattr(Query, "ask", fail)
        with service() as client:
            problem = query(client, {"text": "a"}, 500)

        assert problem["detail"] == "An error of the server. See its log, and report it."
        assert "inside" in caplog.text


class TestToken:
    @pytest.mark.parametrize(
        ("sent", "status"),
        [("Bearer secret", 200), ("Bearer sécret", 401), ("Basic secret", 401), ("", 401)],
    )
    def test_only_who_has_it_may_ask(self, sent: str, status: int) -> None:
        with service(token="secret") as client:
            headers = {b"Authorization": sent.encode()} if sent else {}
            response = client.post("/v1/query", json={"text": "a"}, headers=headers)
            healthy = client.get("/healthz")

        assert response.status_code == status
        assert healthy.status_code == 200
        if status == 401:
            assert response.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer TOKEN" in response.json()["detail"]


class TestIndexAway:
    def test_503_until_it_is_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        away = [AWAY]
        opened = []

        def open_index() -> LookUp:
            opened.append(True)
            if away:
                raise ServiceError(away[0])
            return memory()

        with service(open_index=open_index) as client:
            response = client.post("/v1/query", json={"text": STORY})
            ready = client.get("/readyz")
            healthy = client.get("/healthz")
            attempts = len(opened)
            monkeypatch.setattr(source, "PAUSE", 0.0)
            away.clear()
            found = query(client, {"text": STORY})
            ready_again = client.get("/readyz")

        assert response.status_code == ready.status_code == 503
        assert response.headers["retry-after"] == "2"
        assert response.json()["detail"] == f"{AWAY} Try again after 2 s."
        assert healthy.status_code == 200
        assert attempts == 1
        assert found["known"]
        assert (ready_again.status_code, ready_again.text) == (200, "ok\n")

    def test_no_answer_in_time_is_503(self, monkeypatch: pytest.MonkeyPatch) -> None:
        free = threading.Event()

        def wait(_self: Query, _questions: Sequence[Question]) -> list[Answer]:
            free.wait(10)
            return []

        monkeypatch.setattr(Query, "ask", wait)
        settings = Settings(serve_timeout=0.05)
        with service(settings, lambda: memory(settings)) as client:
            problem = query(client, {"text": "a"}, 503)
            free.set()

        assert "has not answered in time" in problem["detail"]


class TestLane:
    @staticmethod
    def questions(count: int, name: str = "") -> list[Question]:
        return [Question(Document("", ""), f"{name}{number}") for number in range(count)]

    @staticmethod
    def answer(questions: Sequence[Question]) -> list[Answer]:
        asked = Query(SETTINGS, memory()).ask(list(questions))
        return [answer for _, answer in zip(questions, asked, strict=True)]

    def test_what_waits_goes_together_and_a_batch_makes_way(self) -> None:
        calls: list[list[Any]] = []
        began, free = threading.Event(), threading.Event()

        def ask(questions: Sequence[Question]) -> list[Answer]:
            calls.append([question.id for question in questions])
            began.set()
            free.wait(10)
            return self.answer(questions)

        async def work() -> list[list[Answer]]:
            one_lane = Lane(ask, 1_000, 1_000)
            tasks = [asyncio.create_task(one_lane.ask(self.questions(2 * lane.PIECE, "batch")))]
            await asyncio.to_thread(began.wait, 10)
            tasks += [
                asyncio.create_task(one_lane.ask(self.questions(1, name))) for name in ("x", "y")
            ]
            await asyncio.sleep(0)
            free.set()
            found = await asyncio.gather(*tasks)
            await one_lane.close()
            return found

        batch, x, y = asyncio.run(work())

        assert [len(call) for call in calls] == [lane.PIECE, 2, lane.PIECE]
        assert calls[1] == ["x0", "y0"]
        assert [answer.id for answer in batch] == [f"batch{n}" for n in range(2 * lane.PIECE)]
        assert (x[0].id, y[0].id) == ("x0", "y0")

    def test_too_many_are_refused_but_never_a_request_alone(self) -> None:
        free = threading.Event()

        def ask(questions: Sequence[Question]) -> list[Answer]:
            free.wait(10)
            return self.answer(questions)

        async def work() -> None:
            one_lane = Lane(ask, 2, 1_000)
            first = asyncio.create_task(one_lane.ask(self.questions(3)))
            await asyncio.sleep(0)
            with pytest.raises(Busy):
                await one_lane.ask(self.questions(1))
            free.set()
            assert len(await first) == 3
            assert len(await one_lane.ask(self.questions(1))) == 1
            await one_lane.close()

        asyncio.run(work())

    def test_long_texts_go_in_calls_of_their_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise one call takes as long as 32 requests of the largest size do."""
        monkeypatch.setattr(lane, "PIECE_BYTES", 10)
        calls: list[list[Any]] = []

        def ask(questions: Sequence[Question]) -> list[Answer]:
            calls.append([question.id for question in questions])
            return self.answer(questions)

        async def work() -> None:
            one_lane = Lane(ask, 100, 1_000)
            lengths = {"a": [4, 4, 4], "b": [2], "c": [7], "d": [99], "e": [1]}
            requests = [
                [Question(Document("", "é" * (length // 2) + "x" * (length % 2)), name)]
                for name, own in lengths.items()
                for length in own
            ]
            requests[:3] = [[question for request in requests[:3] for question in request]]
            await asyncio.gather(*map(one_lane.ask, requests))
            await one_lane.close()

        asyncio.run(work())

        assert calls == [["a", "a", "b"], ["c"], ["d"], ["e", "a"]]

    def test_too_long_ones_are_refused_but_never_a_request_alone(self) -> None:
        free = threading.Event()

        def ask(questions: Sequence[Question]) -> list[Answer]:
            free.wait(10)
            return self.answer(questions)

        async def work() -> None:
            one_lane = Lane(ask, 100, 10)
            long, short = Question(Document("", "é" * 4)), Question(Document("", "xyz"))
            first = asyncio.create_task(one_lane.ask([long, long]))
            await asyncio.sleep(0)
            with pytest.raises(Busy):
                await one_lane.ask([short])
            free.set()
            assert len(await first) == 2
            assert len(await one_lane.ask([short])) == 1
            await one_lane.close()

        asyncio.run(work())

    def test_who_does_not_wait_is_left_out(self) -> None:
        calls = []
        began, free = threading.Event(), threading.Event()

        def ask(questions: Sequence[Question]) -> list[Answer]:
            calls.append([question.id for question in questions])
            began.set()
            free.wait(10)
            return self.answer(questions)

        async def work() -> None:
            one_lane = Lane(ask, 100, 1_000)
            tasks = [asyncio.create_task(one_lane.ask(self.questions(1, "first")))]
            await asyncio.to_thread(began.wait, 10)
            tasks += [
                asyncio.create_task(one_lane.ask(self.questions(1, name))) for name in ("x", "y")
            ]
            await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.sleep(0)
            free.set()
            await asyncio.wait(tasks)
            await one_lane.close()

        asyncio.run(work())

        assert calls == [["first0"], ["y0"]]


def test_what_is_asked_is_counted(client: TestClient) -> None:
    def count(line: str) -> float:
        metrics = client.get("/metrics").text
        return sum(float(one.split()[-1]) for one in metrics.splitlines() if one.startswith(line))

    new = 'stream_dedup_query_documents_total{status="new"}'
    bad = 'stream_dedup_query_requests_total{code="422"}'
    before = count(new), count(bad)

    query(client, {"documents": [{"text": "one"}, {"text": "two"}]})
    query(client, {}, 422)

    assert (count(new), count(bad)) == (before[0] + 2, before[1] + 1)


def test_its_metrics_name_the_configuration_and_tell_of_redis(client: TestClient) -> None:
    query(client, {"documents": [{"text": "one"}]})

    page = client.get("/metrics").text

    assert re.search(r'stream_dedup_build_info\{configuration="\w{16}",version="[^"]+"\} 1.0', page)
    assert "# TYPE stream_dedup_redis_errors_total counter" in page
    assert "stream_dedup_redis_retries_total" in page
    assert "stream_dedup_documents_total" not in page
