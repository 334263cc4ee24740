"""What a fuzzer gives bytes to: each harness raises only when the program has a defect.

Tests run them on the catalogue and, with hypothesis, on what that makes of it; ``make fuzz`` runs
them under atheris, guided by which branches of the program an input reaches.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from starlette.testclient import TestClient

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.errors import SettingsError
from stream_dedup.serve.app import make_app
from stream_dedup.serve.source import Source
from stream_dedup.settings import ENV_PREFIX
from stream_dedup.settings_sources import load_settings
from stream_dedup.stream.annotation import annotate
from stream_dedup.stream.decoding import Decoder
from stream_dedup.stream.poison import MAX_DETAIL_CHARACTERS, Poison
from stream_dedup.text.normalize import normalize
from stream_dedup.types import Decision, Method, Status
from tests.hostile.catalogue import CATALOGUE, GOOD, SETTINGS
from tests.hostile.growth import LARGE, Step, growth, of_bytes, of_text, read

_DECISION = Decision(Status.ORIGINAL, "a" * 24, "x", Method.MINHASH, "b" * 16, decided_at="now")
#: Bytes of the messages that are compared by time.
GROWING_BYTES = (8_000, 32_000)
_ANSWERS = {200, 400, 413, 422, 503}


def decoder(value: bytes) -> None:
    """Anything is a document or poison; poison tells nothing of the message."""
    try:
        document = _decoder().decode(value, fallback_id="id", fallback_time=0.0)
    except Poison as poison:
        _check(poison.detail, MAX_DETAIL_CHARACTERS)
        return
    assert document.time is not None
    document.text.encode()  # a lone surrogate could not be published
    str(document.id).encode()


def splice(value: bytes) -> None:
    """A document can be annotated, and again; the annotation is the one that consumers read."""
    try:
        _decoder().decode(value, fallback_id="id")
    except Poison:
        return
    once = annotate(value, _DECISION)
    for annotated in (once, annotate(once, _DECISION)):
        before, after = _fields(value), _fields(annotated)
        assert msgspec.json.decode(after.pop("dedup"), type=Decision) == _DECISION
        before.pop("dedup", None)
        assert after == before


def normaliser(value: bytes) -> None:
    """Any text has one normal form, which is its own; alone or among others."""
    text = value.decode("utf-8", "surrogatepass" if _has_surrogates(value) else "replace")
    first, alone, last = normalize(["a", text, "é"]).encoded()
    assert (first, last) == (b"a", "é".encode())
    assert normalize([text]).encoded() == [alone]
    assert normalize([alone.decode()]).encoded() == [alone]


def growing(value: bytes) -> None:
    """A message that repeats a part of it takes time in proportion: before, part, behind."""
    before, unit, after = [*value.split(b"\n", 2), b"", b""][:3]
    unit = unit or b"a"
    if before.startswith(b"{"):
        make = of_bytes(unit, before, after)
    else:
        make = of_text(*(part.decode("utf-8", "replace") for part in (unit, before, after)))
    assert growth(_read(), make, GROWING_BYTES) < LARGE


def settings(value: bytes) -> None:
    """A file of settings, and as many in the environment and of flags, are right or refused."""
    text = value.decode("utf-8", "surrogateescape")
    names = list(Settings.model_fields)
    lines = [line.partition("=") for line in text.split("\n")]
    given = {name.strip(): content.strip() for name, _, content in lines}
    environment = {
        ENV_PREFIX + name.upper(): content
        for name, content in given.items()
        if name in names and "\0" not in content
    }
    with _file(value) as path, mock.patch.dict(os.environ, environment):
        for flags in ({}, given):
            try:
                load_settings(flags, path)
            except SettingsError as error:
                _check("".join(str(error).split()), 1_000_000)


def http(value: bytes) -> None:
    """Any body has an answer that is documented, and none is an error of the server."""
    head, _, body = value.partition(b"\n")
    kind = "application/json"
    if head.startswith(b"?"):
        kind = head[1:40].decode("latin-1").replace("\r", "")
    else:
        body = value
    headers = [(b"content-type", kind.encode("latin-1"))]
    response = _client().post("/v1/query", content=body, headers=headers)
    assert response.status_code in _ANSWERS, response.text
    kind = "application/json" if response.status_code == 200 else "application/problem+json"
    assert response.headers["content-type"] == kind
    json.loads(response.content)


HARNESSES: dict[str, Callable[[bytes], None]] = {
    one.__name__: one for one in (decoder, splice, normaliser, growing, settings, http)
}


def seeds(name: str) -> Iterator[bytes]:
    """Yield what a fuzzer of a harness begins with."""
    if name == "settings":
        yield b"threshold = 0.5\nshingle = 'word:3'\nredis_url = 'redis://localhost'\n"
        yield "\n".join(
            f"{setting} = {json.dumps(field.default, default=str)}"
            for setting, field in Settings.model_fields.items()
        ).encode()
        return
    elif name == "http":
        yield b'{"text": "a", "id": "\\udc00"}'
        yield b'{"text": "a", "\\udc00": 1}'
        yield b'{"documents": [{"id": 7, "text": "a", "time": 0}], "explain": true}'
        yield b"?text/plain; charset=utf-16\n" + '{"text": "a"}'.encode("utf-16")
    elif name == "growing":
        yield from (f"a\n{unit}\nb".encode() for unit in ("\u0301\u0316", "\ufdfa", "<a ", "a@"))
        yield b'{"text":"a","x":[' + b"[]," * 501 + b'"\n\\"\n]}'
        return
    for record in CATALOGUE:
        if record.value is not None and len(record.value) < 4096:
            yield record.value


def _check(sentence: str, most: int) -> None:
    assert 0 < len(sentence) <= most


def _has_surrogates(value: bytes) -> bool:
    try:
        value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _fields(value: bytes) -> dict[str, bytes]:
    raw = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {name: bytes(one) for name, one in raw.items()}


@cache
def _read() -> Step:
    return read("cleaned")


@cache
def _decoder() -> Decoder:
    return Decoder(SETTINGS)


@cache
def _client() -> TestClient:
    """Return a client of a service that knows one document; both live as long as the process."""
    deduplicator = Deduplicator(SETTINGS)
    deduplicator.decide([Document("a", GOOD)])
    served: Any = make_app(SETTINGS, Source(SETTINGS, lambda: deduplicator.index))
    return TestClient(served, raise_server_exceptions=False).__enter__()


@contextmanager
def _file(content: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(content)
        file.flush()
        yield Path(file.name)
