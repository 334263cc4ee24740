"""Where scrapes come from: the workers' metrics endpoints, or a Prometheus that scrapes them."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec

from stream_dedup.errors import SettingsError
from stream_dedup.top.scrape import PREFIX, Scrape

#: Seconds for the answer of an endpoint.
TIMEOUT = 3.0
#: Endpoints that are asked at a time.
_AT_ONCE = 16
#: Largest answer that is read, in bytes.
_MOST_BYTES = 64 * 1024 * 1024
#: Name of the job that scrapes the workers; see ops/prometheus/prometheus.yml.
_JOB = "stream-dedup"
#: Scrapes that lie this much behind the newest are of a worker that is no more.
_STALE = 60.0
#: Span and step of the curve of documents that Prometheus gives, in seconds.
_CURVE = (1800.0, 15.0)


class Look(NamedTuple):
    """One look at all endpoints.

    Attributes:
        scrapes: the latest scrape of each that answered, by its name.
        problems: what is wrong with the others, a sentence each.
        before: an earlier scrape of some, where the source knows one.
        curve: documents a second up to now, oldest first, where the source knows it.
    """

    scrapes: dict[str, Scrape]
    problems: dict[str, str]
    before: Mapping[str, Scrape] = {}
    curve: list[float] | None = None


class Source(Protocol):
    """What the view reads."""

    #: Seconds that figures are to be over.
    window: float

    def look(self) -> Look:
        """Read everything; what does not answer is a problem in the result."""


class Endpoints:
    """Metrics endpoints of workers.

    Args:
        urls: their addresses; without a path it is ``/metrics``.
        token: sent as Bearer; read anew for each look. Empty: none.

    Raises:
        SettingsError: an address is none.
    """

    window = 10.0

    def __init__(self, urls: Sequence[str], token: Callable[[], str]) -> None:
        self._urls = {urlsplit(url).netloc: url for url in map(_address, urls)}
        self._token = token

    def look(self) -> Look:
        """Scrape all endpoints at once."""
        token = self._token()
        look = Look({}, {})
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._urls))) as pool:
            told = pool.map(lambda url: _attempt(url, token), self._urls.values())
            for name, found in zip(self._urls, told, strict=True):
                if isinstance(found, Scrape):
                    look.scrapes[name] = found
                else:
                    look.problems[name] = found
        return look


class Prometheus:
    """A Prometheus server that scrapes workers.

    Args:
        url: of the server, with the prefix of its API if it has one.
        token: sent as Bearer; read anew for each look. Empty: none.

    Raises:
        SettingsError: it is no address.
    """

    window = 120.0

    def __init__(self, url: str, token: Callable[[], str]) -> None:
        self._url = _checked(url).rstrip("/")
        self._token = token

    def look(self) -> Look:
        """Ask for what was scraped in the last minutes."""
        name = urlsplit(self._url).netloc
        try:
            scrapes = self._scrapes()
            down = self._query("query", query=f'up{{job="{_JOB}"}} == 0')
            curve = self._curve()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Look({}, {name: explain(error)})
        problems = {
            one["metric"].get("instance", ""): "Prometheus cannot scrape it." for one in down
        }
        latest = max((found[-1].at for found in scrapes.values()), default=0.0)
        alive = {
            instance: found
            for instance, found in scrapes.items()
            if instance not in problems and found[-1].at > latest - _STALE
        }
        if not alive and not problems:
            problems[name] = f"It has no metrics of {PREFIX.rstrip('_')}."
        return Look(
            {instance: found[-1] for instance, found in alive.items()},
            problems,
            {instance: found[0] for instance, found in alive.items() if len(found) > 1},
            curve,
        )

    def _scrapes(self) -> dict[str, list[Scrape]]:
        """Return the scrapes of each instance within the window, in order."""
        question = f'{{__name__=~"{PREFIX}.+"}}[{self.window:.0f}s]'
        samples: dict[str, dict[float, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for series in self._query("query", query=question):
            labels = dict(series["metric"])
            metric = labels.pop("__name__")
            instance = labels.pop("instance", "")
            labels.pop("job", None)
            # The first and the last moment will do; each moment of an instance is one scrape.
            for at, value in series["values"]:
                samples[instance][float(at)].append((metric, labels, float(value)))
        return {
            instance: [Scrape.of(at, moments[at]) for at in (min(moments), max(moments))]
            if len(moments) > 1
            else [Scrape.of(at, found) for at, found in moments.items()]
            for instance, moments in samples.items()
        }

    def _curve(self) -> list[float]:
        span, step = _CURVE
        now = time.time()
        found = self._query(
            "query_range",
            query=f"sum(rate({PREFIX}documents_total[1m]))",
            start=f"{now - span:.3f}",
            end=f"{now:.3f}",
            step=f"{step:.0f}",
        )
        return [float(value) for _, value in found[0]["values"]] if found else []

    def _query(self, kind: str, **question: str) -> list[dict[str, Any]]:
        url = f"{self._url}/api/v1/{kind}?{urlencode(question)}"
        answer = msgspec.json.decode(fetch(url, self._token()))
        if not isinstance(answer, dict) or answer.get("status") != "success":
            msg = "it gives no answer as Prometheus does"
            raise ValueError(msg)
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: the token would go along."""

    def redirect_request(self, *_args: Any, **_named: Any) -> None:
        """Refuse."""


_opener = urllib.request.build_opener(_NoRedirects)


def fetch(url: str, token: str) -> bytes:
    """Get what is at an address of HTTP.

    Args:
        url: checked before.
        token: sent as Bearer; empty: none.

    Raises:
        OSError: no answer, or not one with status 200.
        http.client.HTTPException: the answer is not HTTP.
        ValueError: it is too long.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - see _checked
    with _opener.open(request, timeout=TIMEOUT) as answer:
        body: bytes = answer.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        msg = "it answers more than can be read"
        raise ValueError(msg)
    return body


def explain(error: Exception) -> str:
    """Say in a sentence what is wrong with an endpoint, and quote nothing that it sent."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        if error.code in (401, 403):
            return "It wants another token; give it with http_token_file."
        return f"It answers with the HTTP status {error.code}."
    if isinstance(error, ValueError):
        return "What it answers are no metrics."
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"It has not answered within {TIMEOUT:g} s."
    said = reason.strerror if isinstance(reason, OSError) else None
    return f"It does not answer ({said or type(reason).__name__})."


def _attempt(url: str, token: str) -> Scrape | str:
    """Scrape, or say what is wrong."""
    try:
        return Scrape.parse(time.time(), fetch(url, token).decode())
    except (OSError, http.client.HTTPException, ValueError) as error:
        return explain(error)


def _address(url: str) -> str:
    """Complete the address of an endpoint."""
    parts = urlsplit(_checked(url))
    return parts._replace(path=parts.path if parts.path.strip("/") else "/metrics").geturl()


def _checked(url: str) -> str:
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if "@" in url:
        msg = "An address of HTTP has a login in it, and is shown. Give http_token_file instead."
        raise SettingsError(msg)
    if not known:
        msg = f"{url!r} is no address of HTTP. Write one such as http://127.0.0.1:9464."
        raise SettingsError(msg)
    return full
