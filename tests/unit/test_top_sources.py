"""Reading metrics over HTTP, from workers and from Prometheus, and what goes wrong with it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from stream_dedup.errors import SettingsError
from stream_dedup.top import sources
from stream_dedup.top.figures import figures_of
from stream_dedup.top.monitor import Monitor
from stream_dedup.top.scrape import Change
from stream_dedup.top.sources import Endpoints, Prometheus
from tests.models.exposition import AFTER
from tests.services.answering import Answer, Server


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def endpoints(*urls: str, token: str = "") -> Endpoints:
    return Endpoints(urls, lambda: token)


class TestEndpoints:
    def test_are_scraped_at_metrics(self, server: Server) -> None:
        asked = []

        def answer(path: str, headers: Any) -> Answer:
            asked.append((path, headers.get("Authorization")))
            return 200, {}, AFTER.encode()

        server.answer = answer

        look = endpoints(server.place).look()

        assert asked == [("/metrics", None)]
        assert look.problems == {}
        (scrape,) = look.scrapes.values()
        assert Change([(None, scrape)]).sum("documents_total") == 2495
        assert scrape.at == pytest.approx(time.time(), abs=10)

    def test_another_path_is_kept(self, server: Server) -> None:
        asked = []

        def answer(path: str, _headers: Any) -> Answer:
            asked.append(path)
            return 200, {}, b""

        server.answer = answer

        endpoints(f"http://{server.place}/workers/1/metrics").look()

        assert asked == ["/workers/1/metrics"]

    def test_get_the_token(self, server: Server) -> None:
        def answer(_path: str, headers: Any) -> Answer:
            granted = headers.get("Authorization") == "Bearer sesame"
            return (200 if granted else 401), {}, AFTER.encode()

        server.answer = answer

        assert endpoints(server.place, token="sesame").look().problems == {}
        assert endpoints(server.place).look().problems == {
            server.place: "It wants another token; give it with http_token_file."
        }

    def test_the_token_goes_nowhere_else(self, server: Server) -> None:
        asked = []

        def answer(path: str, _headers: Any) -> Answer:
            asked.append(path)
            return 302, {"Location": f"http://{server.place}/elsewhere"}, b""

        server.answer = answer

        look = endpoints(server.place, token="sesame").look()

        assert asked == ["/metrics"]
        assert look.problems == {server.place: "It answers with the HTTP status 302."}

    def test_one_that_is_down_leaves_the_others(self, server: Server) -> None:
        server.answer = lambda _path, _headers: (200, {}, AFTER.encode())
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            down = f"127.0.0.1:{closed.getsockname()[1]}"

            look = endpoints(down, server.place).look()

        assert list(look.scrapes) == [server.place]
        assert look.problems == {down: "It does not answer (Connection refused)."}

    def test_one_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "TIMEOUT", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            place = f"127.0.0.1:{silent.getsockname()[1]}"

            look = endpoints(place).look()

        assert look.problems == {place: "It has not answered within 0.2 s."}

    @pytest.mark.parametrize("body", [b"<html>", b"\xff\xfe", b'stream_dedup_x{a="b 1'])
    def test_what_is_no_metrics_is_told_and_not_quoted(self, server: Server, body: bytes) -> None:
        server.answer = lambda _path, _headers: (200, {}, body)

        assert endpoints(server.place).look().problems == {
            server.place: "What it answers are no metrics."
        }

    def test_an_answer_without_end_is_cut_off(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "_MOST_BYTES", 1000)
        server.answer = lambda _path, _headers: (200, {}, b"# " + b"x" * 2000)

        assert len(endpoints(server.place).look().problems) == 1

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host", "http://", "host:port"])
    def test_an_address_is_checked(self, url: str) -> None:
        with pytest.raises(SettingsError, match="no address of HTTP"):
            endpoints(url)

    def test_an_address_with_a_login_is_refused_and_not_quoted(self) -> None:
        with pytest.raises(SettingsError, match="has a login in it") as caught:
            endpoints("http://someone:hush@host:9464")

        assert "hush" not in str(caught.value)


class Answers:
    """What a Prometheus says, by the beginning of the query."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.samples = self._series("documents_total", "a:9464", (now - 105, 0), (now, 1050))
        self.samples += self._series("index_originals", "a:9464", (now - 105, 5), (now, 7))
        self.samples += self._series("documents_total", "gone:9464", (now - 105, 0), (now - 90, 9))
        self.down: list[Any] = []

    def __call__(self, path: str, headers: Any) -> Answer:
        question = parse_qs(urlsplit(path).query)["query"][0]
        if "query_range" in path:
            result: list[Any] = [{"metric": {}, "values": [[1, "5"], [2, "7.5"]]}]
        else:
            result = self.down if question.startswith("up") else self.samples
        body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return 200, {}, json.dumps(body).encode()

    @staticmethod
    def _series(name: str, instance: str, *values: tuple[float, float]) -> list[Any]:
        labels = {"__name__": f"stream_dedup_{name}", "instance": instance, "job": "stream-dedup"}
        return [{"metric": labels, "values": [[at, str(value)] for at, value in values]}]


class TestPrometheus:
    def test_one_look_has_figures_and_a_curve(self, server: Server) -> None:
        server.answer = Answers(1000.0)
        source = Prometheus(f"http://{server.place}/", lambda: "")

        view = Monitor(source).look()

        assert view.answering == ["a:9464"]  # the other has not been scraped for a while
        assert view.figures.seconds == 105
        assert view.figures.documents.per_second == pytest.approx(10)
        assert view.figures.index.originals == 7
        assert view.curve == [5.0, 7.5]

    def test_an_instance_that_is_down_is_a_problem(self, server: Server) -> None:
        server.answer = answers = Answers(1000.0)
        answers.down = [{"metric": {"instance": "a:9464"}, "value": [1000, "0"]}]

        look = Prometheus(server.place, lambda: "").look()

        assert look.scrapes == {}
        assert look.problems == {"a:9464": "Prometheus cannot scrape it."}

    def test_no_metrics_at_all_is_a_problem(self, server: Server) -> None:
        server.answer = answers = Answers(1000.0)
        answers.samples = []

        look = Prometheus(server.place, lambda: "").look()

        assert look.problems == {server.place: "It has no metrics of stream_dedup."}
        assert figures_of(Change([])).seconds == 0

    @pytest.mark.parametrize("body", [b"[]", b"{", b'{"status": "error"}'])
    def test_what_is_no_prometheus_is_told(self, server: Server, body: bytes) -> None:
        server.answer = lambda _path, _headers: (200, {}, body)

        look = Prometheus(server.place, lambda: "").look()

        assert look.problems == {server.place: "What it answers are no metrics."}
