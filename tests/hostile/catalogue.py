"""Classes of hostile records: what each is, and what must become of it.

``CATALOGUE`` is used by the tests of the loop, of ``stream-dedup run`` and of a worker on Kafka; it
is the seed corpus of the fuzzers; and ``docs/hostile-input.md`` lists it. Texts that are meant to
be new have words of their own, so what becomes of a record does not depend on the others.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from stream_dedup.settings import Settings
from stream_dedup.stream.decoding import MAX_DEPTH
from stream_dedup.stream.poison import Reason
from stream_dedup.types import Status
from tests.services.batches import COMPRESSED, batch, long_record, record

#: A time that every test may take for the present.
NOW = 1_763_700_000_000
GOOD = "The ferry to the island leaves at nine in the morning, and again at noon if it is full."
#: What every use of the catalogue decides by.
OPTIONS: dict[str, Any] = {
    "time_field": "at",
    "rank_field": "rank",
    "origin_field": "origin",
    "max_document_bytes": 8_000_000,
    "max_unpacked_bytes": 16_000_000,
}
SETTINGS = Settings.model_validate(OPTIONS)

_EXACT = Status.EXACT_DUPLICATE
_ORIGINAL = Status.ORIGINAL
Fate = Status | Reason
Header = tuple[str, bytes]


class Hostile(NamedTuple):
    """A class of records, by an example.

    Attributes:
        name: of the class.
        part: of the record that is hostile: value, key, headers, timestamp, or batch: all that is
            around it.
        fate: the status that it is answered with, or the reason of its dead letter.
        value: of the record.
        key: of the record.
        headers: of the record.
        timestamp: milliseconds since the epoch.
        in_file: whether its value can be a line of a file, and has the same fate there.
        batch: the batch that it is alone in, as no client would send it.
    """

    name: str
    part: str
    fate: Fate
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int = NOW
    in_file: bool = True
    batch: bytes | None = None


def neighbour(name: str) -> bytes:
    """Return a good document with the text of all good documents."""
    return json.dumps({"id": name, "text": GOOD}).encode()


def text_of(name: str, words: int = 20) -> str:
    """Return a text that no other name gives."""
    return " ".join(f"{name}{number}" for number in range(words))


def _document(name: str, **fields: object) -> bytes:
    """Return an object with a text of its own, unless one is given."""
    return json.dumps({"text": text_of(name), **fields}, ensure_ascii=False).encode()


def _with(name: str, raw: bytes) -> bytes:
    """Return an object with a text of its own and raw bytes behind it."""
    return _document(name)[:-1] + b"," + raw + b"}"


def _nested(name: str, depth: int, opening: bytes, closing: bytes) -> bytes:
    return _with(name, b'"x":' + opening * depth + b"1" + closing * depth)


def _not_json() -> list[Hostile]:
    whole = _document("truncated")
    values = {
        "empty": b"",
        "blank": b" \t ",
        "plain words": b"hello",
        "truncated in a string": whole[:40],
        "truncated before the brace": whole[:-1],
        "cut in the middle of an escape": b'{"text": "a\\u12',
        "two objects": b'{"text": "a"}{"text": "b"}',
        "rubbish behind the object": b'{"text": "a"} x',
        "byte order mark": b"\xef\xbb\xbf" + _document("bom"),
        "NaN": _with("nan", b'"x":NaN'),
        "Infinity": _with("infinity", b'"x":-Infinity'),
        "lone surrogate in the text": b'{"text": "\\ud800"}',
        "lone surrogate in the id": _with("surrogateid", b'"id":"\\udc00"'),
        "lone surrogate in another field": _with("surrogatefield", b'"x":"\\ud800"'),
        "lone surrogate in a name": _with("surrogatename", b'"\\udfff":1'),
        "surrogates in the wrong order": b'{"text": "\\ude00\\ud83d"}',
        "raw NUL in a string": b'{"text": "a\x00b"}',
        "raw control characters": b'{"text": "a\x1b[2Jb\x07"}',
        "unknown escape": b'{"text": "\\q"}',
        "single quotes": b"{'text': 'a'}",
        "trailing comma": b'{"text": "a",}',
        "comment": b'{"text": "a" /* b */}',
        "leading zero": _with("zero", b'"x":01'),
        "number without digits": _with("dash", b'"x":-'),
        "text twice, first a number": b'{"text": 1, "text": "a"}',
        "XML": b"<text>a</text>",
        "MessagePack": b"\x81\xa4text\xa1a",
        "gzip that nobody asked for": gzip.compress(b"a" * 5_000_000, mtime=0),
        "objects that never close": b'{"a":' * 400,
        "string of quotes that never ends, behind many brackets": (
            _document("quotes")[:-1] + b',"x":[' + b"[]," * 600 + b'"' + b'\\"' * 200_000
        ),
        "pickle": b"cos\nsystem\n(S'true'\ntR.",
    }
    not_utf8 = {"gzip that nobody asked for", "MessagePack"}
    no_lines = {"empty", "blank", "pickle"}
    return [
        Hostile(
            name,
            "value",
            Reason.NOT_UTF8 if name in not_utf8 else Reason.NOT_JSON,
            value,
            in_file=name not in no_lines and b"\n" not in value,
        )
        for name, value in values.items()
    ]


def _not_utf8() -> list[Hostile]:
    values = {
        "bytes that are not UTF-8": b'{"text": "\xff\xfe"}',
        "Latin-1": '{"text": "caf\xe9"}'.encode("latin-1"),
        "UTF-16": '{"text": "a"}'.encode("utf-16"),
        "overlong slash": b'{"text": "\xc0\xaf"}',
        "surrogate as UTF-8": b'{"text": "\xed\xa0\x80"}',
        "beyond Unicode": b'{"text": "\xf4\x90\x80\x80"}',
        "not UTF-8 in a field nobody reads": _with("latin", b'"x":"\xe9"'),
        "cut in the middle of a character": '{"text": "日'.encode()[:-1],
        "random bytes": b"\xff" + random.Random(9).randbytes(10_000).replace(b"\n", b""),
    }
    return [Hostile(name, "value", Reason.NOT_UTF8, value) for name, value in values.items()]


def _wrong_kinds() -> list[Hostile]:
    deep = 100_000
    values: dict[str, tuple[Fate, bytes]] = {
        "array": (Reason.NOT_AN_OBJECT, b'[{"text": "a"}]'),
        "string": (Reason.NOT_AN_OBJECT, b'"text"'),
        "number": (Reason.NOT_AN_OBJECT, b"1e400"),
        "null": (Reason.NOT_AN_OBJECT, b"null"),
        "no field at all": (Reason.MISSING_TEXT, b"{}"),
        "text under a name of other case": (Reason.MISSING_TEXT, b'{"Text": "a"}'),
        "text is null": (Reason.WRONG_TYPE, b'{"text": null}'),
        "text is a number": (Reason.WRONG_TYPE, b'{"text": 1}'),
        "text is an array": (Reason.WRONG_TYPE, b'{"text": ["a"]}'),
        "text is an object": (Reason.WRONG_TYPE, b'{"text": {"a": "b"}}'),
        "origin is an array": (Reason.WRONG_TYPE, _document("origin", origin=[1])),
        "id is an object": (Reason.BAD_ID, _document("idobject", id={})),
        "id is a fraction": (Reason.BAD_ID, _document("idfraction", id=1.5)),
        "id is true": (Reason.BAD_ID, _document("idtrue", id=True)),
        "id of more than 64 bits": (Reason.BAD_ID, _document("idlarge", id=2**64)),
        "id of 5,000 digits": (Reason.BAD_ID, _with("iddigits", b'"id":' + b"9" * 5000)),
        "id of 2,000 characters": (Reason.BAD_ID, _document("idlong", id="x" * 2000)),
        "time is words": (Reason.BAD_TIME, _document("timewords", at="noon")),
        "time is NUL": (Reason.BAD_TIME, _document("timenul", at="\0")),
        "time is an array": (Reason.BAD_TIME, _document("timearray", at=[])),
        "time 1e400": (Reason.BAD_TIME, _with("timehuge", b'"at":1e400')),
        "time beyond the year 5138": (Reason.BAD_TIME, _document("timefar", at=1e300)),
        "time of 5,000 digits": (Reason.BAD_TIME, _with("timedigits", b'"at":' + b"9" * 5000)),
        "time on 30 February": (Reason.BAD_TIME, _document("timeday", at="2026-02-30")),
        "rank 1e400": (Reason.BAD_RANK, _with("rankhuge", b'"rank":1e400')),
        "rank is a word": (Reason.BAD_RANK, _document("rankword", rank="first")),
        "100,000 arrays in one another": (Reason.TOO_DEEP, _nested("deep", deep, b"[", b"]")),
        "100,000 objects in one another": (
            Reason.TOO_DEEP,
            _nested("deepobject", deep, b'{"":', b"}"),
        ),
        "100,000 arrays that never close": (Reason.TOO_DEEP, b"[" * deep),
        "one level too deep": (Reason.TOO_DEEP, _nested("onemore", MAX_DEPTH, b"[", b"]")),
    }
    return [Hostile(name, "value", fate, value) for name, (fate, value) in values.items()]


def _strange_but_documents() -> list[Hostile]:
    scattered = "\u200b".join(GOOD)
    values: dict[str, tuple[Fate, bytes]] = {
        "zero-width between letters": (_EXACT, _document("", text=scattered)),
        "bidirectional controls": (_EXACT, _document("", text=f"\u202e{GOOD}\u202c\u2066\u2069")),
        "byte order mark in the text": (_EXACT, _document("", text="\ufeff" + GOOD)),
        "full-width letters": (
            _EXACT,
            _document("", text="".join(chr(ord(c) + 0xFEE0) if c > " " else c for c in GOOD)),
        ),
        "soft hyphens and tags": (_EXACT, _document("", text=f"\u00ad{GOOD}\U000e0041")),
        "every letter as an escape": (
            _EXACT,
            b'{"text": "%s"}' % "".join(f"\\u{ord(c):04x}" for c in GOOD).encode(),
        ),
        "text twice, the last is good": (_EXACT, b'{"text": "a", ' + neighbour("twice")[1:]),
        "name of the text as escapes": (
            _EXACT,
            b'{"\\u0074ext": ' + json.dumps(GOOD).encode() + b"}",
        ),
        "annotated already, by a stranger": (_EXACT, _document("", text=GOOD, dedup=[["no"]])),
        "annotated twice": (_EXACT, b'{"dedup": 1, "dedup": 2, ' + neighbour("twice")[1:]),
        "annotated under an escaped name": (
            _EXACT,
            b'{"\\u0064edup": {"a": 1}, ' + neighbour("escaped")[1:],
        ),
        "annotation inside another field": (
            _EXACT,
            b'{"x": {"dedup": "}"}, ' + neighbour("inside")[1:],
        ),
        "text without a character": (_ORIGINAL, _document("", text="")),
        "one million tokens": (_ORIGINAL, _document("", text=text_of("", 1_000_000))),
        "one word of a million letters": (_ORIGINAL, _document("", text="wörd" * 250_000)),
        "one letter with 100,000 accents": (
            _ORIGINAL,
            _document("", text="q" + "\u0301" * 100_000),
        ),
        "one letter with 400,000 marks out of order": (
            _ORIGINAL,
            _document("", text="q" + "\u0301" * 200_000 + "\u0316" * 200_000),
        ),
        "100,000 marks that are two marks": (
            _ORIGINAL,
            _document("", text="q" + "\u0344\u0316" * 50_000),
        ),
        "invisible characters between marks": (
            _ORIGINAL,
            _document("", text="q" + "\u0301\u200b\u0316\ufe0f" * 50_000 + "z"),
        ),
        "150,000 letters of Hangul in parts": (
            _ORIGINAL,
            _document("", text="\u1100\u1161\u11a8" * 50_000),
        ),
        "ligature that unfolds to 18 characters": (_ORIGINAL, _document("", text="\ufdfa" * 9999)),
        "escaped NUL": (_ORIGINAL, _document("", text="\0" + text_of("nul") + "\0")),
        "escaped control characters": (_ORIGINAL, _document("", text="\x1b[2J" + text_of("bell"))),
        "noncharacters and private use": (_ORIGINAL, _document("", text="\ufffe\uffff\ue000" * 9)),
        "line separators": (_ORIGINAL, _document("", text=text_of("ls").replace(" ", "\u2028"))),
        "right to left": (_ORIGINAL, _document("", text="שלום עולם مرحبا بالعالم " * 3)),
        "number of 4,000 digits": (_ORIGINAL, _with("digits", b'"x":' + b"9" * 4000)),
        "number 1e400 in another field": (_ORIGINAL, _with("huge", b'"x":1e400')),
        "100,000 fields": (
            _ORIGINAL,
            _document("fields", **{f"f{number}": number for number in range(100_000)}),
        ),
        "100,000 empty objects side by side": (
            _ORIGINAL,
            _with("wide", b'"x":[' + b"{}," * 99_999 + b"{}]"),
        ),
        "brackets in strings": (_ORIGINAL, _document("brackets", x="[{" * 50_000, y='\\"[' * 999)),
        "as deep as may be": (_ORIGINAL, _nested("depth", MAX_DEPTH - 1, b"[", b"]")),
        "name of a million letters": (_ORIGINAL, _document("longname", **{"n" * 1_000_000: 1})),
        "id is the empty string": (_ORIGINAL, _document("idempty", id="")),
        "id with NUL and line break": (_ORIGINAL, _document("idnul", id="a\0b\r\nc: d")),
        "id is the largest number": (_ORIGINAL, _document("idmax", id=2**64 - 1)),
        "id is the smallest number": (_ORIGINAL, _document("idmin", id=-(2**63))),
        "time before the common era of clocks": (_ORIGINAL, _document("timeold", at="0001-01-01")),
        "time of a fraction of a nanosecond": (_ORIGINAL, _document("timesmall", at=1e-300)),
        "__proto__ and __class__": (
            _ORIGINAL,
            _document("proto", __proto__={"a": 1}, __class__="os"),
        ),
        "formulas and templates": (
            _ORIGINAL,
            _document("formula", text="=cmd|'/c calc'!A0 ${jndi:x} {{7*7}} %s%n"),
        ),
    }
    return [Hostile(name, "value", fate, value) for name, (fate, value) in values.items()]


def _sizes() -> list[Hostile]:
    large = _document("", text="x " * 5_000_000)
    noise = random.Random(3).randbytes(12_000_000)
    return [
        Hostile("line of 10 MB", "value", Reason.TOO_LARGE, large),
        Hostile("10 MB of noise", "value", Reason.TOO_LARGE, noise[:10_000_000], in_file=False),
        Hostile(
            "white space around, too large with it",
            "value",
            Reason.TOO_LARGE,
            _document("space") + b" " * 9_000_000,
        ),
        # Packed to some 0.1 % by the producer, and within all limits unpacked.
        Hostile(
            "7 MB that compress to nothing",
            "value",
            _ORIGINAL,
            _document("packed", x="a" * 7_000_000),
        ),
    ]


def _keys() -> list[Hostile]:
    keys: dict[str, bytes] = {
        "key that is not UTF-8": b"\xff\xfe",
        "key with NUL": b"a\0b",
        "key is empty": b"",
        "key of 500,000 bytes": b"k" * 500_000,
        "key of zero-width characters": "\u200b\u202e".encode(),
        "key is JSON": b'{"id": 1}',
    }
    documents = [
        Hostile(name, "key", _ORIGINAL, _document(f"key{number}x"), key, in_file=False)
        for number, (name, key) in enumerate(keys.items())
    ]
    tombstones: dict[str, bytes | None] = {
        "no value and no key": None,
        "no value and an empty key": b"",
        "no value and a key that is not UTF-8": b"\xc3",
        "no value and a key of 500,000 bytes": b"k" * 500_000,
    }
    return documents + [
        Hostile(name, "key", Reason.TOMBSTONE, None, key, in_file=False)
        for name, key in tombstones.items()
    ]


def _headers() -> list[Hostile]:
    headers: dict[str, Sequence[Header]] = {
        "10,000 headers": [(f"h{number}", b"") for number in range(10_000)],
        "header of 500,000 bytes": [("h", b"v" * 500_000)],
        "header name of 30,000 characters": [("ä" * 15_000, b"v")],
        "header without a name": [("", b"v")],
        "header name with line break": [("a\r\nb: c", b"v")],
        "header that is not UTF-8": [("trace", b"\xff\x00\xfe")],
        "the same header 1,000 times": [("h", b"v")] * 1000,
        "our own headers, forged": [("dedup-status", b"near_duplicate"), ("dedup-source", b"/")],
        "dead letter's headers, forged": [("dead-letter-reason", b"x"), ("source-offset", b"-1")],
    }
    documents = [
        Hostile(name, "headers", _ORIGINAL, _document(f"header{n}x"), None, given, in_file=False)
        for n, (name, given) in enumerate(headers.items())
    ]
    forged = headers["dead letter's headers, forged"]
    return [
        *documents,
        Hostile(
            "poison under forged headers", "headers", Reason.NOT_JSON, b"?", b"k", forged
        )._replace(in_file=False),
    ]


def _timestamps() -> list[Hostile]:
    times: dict[str, tuple[Fate, int]] = {
        "timestamp at the beginning of time": (_ORIGINAL, 0),
        "no timestamp": (_ORIGINAL, -1),
        "timestamp in the year 4000": (_ORIGINAL, 64_060_588_800_000),
        "timestamp beyond the year 5138": (Reason.BAD_TIME, 10**14 + 1),
        "largest timestamp": (Reason.BAD_TIME, 2**63 - 1),
    }
    return [
        Hostile(name, "timestamp", fate, _document(f"at{n}x"), timestamp=timestamp, in_file=False)
        for n, (name, (fate, timestamp)) in enumerate(times.items())
    ]


def _batches() -> list[Hostile]:
    names = {
        "header name that is not UTF-8": [(b"caf\xe9", b"1"), (b"trace", b"2")],
        "header name cut in the middle of a character": [("é".encode()[:1], b"")],
    }
    named = [
        Hostile(name, "headers", Reason.BAD_HEADER, value, in_file=False)._replace(
            batch=batch("lz4", 1, iter([record(0, value, headers)]), moment=NOW)
        )
        for name, headers in names.items()
        for value in [_document(name.replace(" ", ""))]
    ]
    bombs = [
        Hostile(f"{codec} that unpacks to 20 MB", "batch", Reason.UNREADABLE, None, in_file=False)
        for codec in COMPRESSED
    ]
    return named + [
        bomb._replace(batch=batch(codec, 1, long_record(0, 20_000_000), moment=NOW))
        for codec, bomb in zip(COMPRESSED, bombs, strict=True)
    ]


CATALOGUE: list[Hostile] = [
    *_not_json(),
    *_not_utf8(),
    *_wrong_kinds(),
    *_strange_but_documents(),
    *_sizes(),
    *_keys(),
    *_headers(),
    *_timestamps(),
    *_batches(),
]

if __name__ == "__main__":
    for hostile in CATALOGUE:
        sys.stdout.write(f"| {hostile.name} | {hostile.part} | `{hostile.fate}` |\n")
