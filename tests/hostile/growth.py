"""Messages of any size that are made to cost more than their size, by class.

A class is a message with one part that repeats; twice the size must not take much more than twice
the time, whatever the class. ``tests/hostile/test_growth.py`` holds all steps from bytes to a
decision to that, ``benchmarks/hostile_texts.py`` prints what each costs at the largest size.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from stream_dedup import Deduplicator, Document, Measure, Settings
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.stream.annotation import annotate
from stream_dedup.stream.decoding import MAX_DEPTH, Decoder
from stream_dedup.stream.poison import Poison
from stream_dedup.text.learn import BoilerplateLearner
from stream_dedup.verify.texts import TextComparison

#: Makes a message of about so many bytes.
Make = Callable[[int], bytes]
Step = Callable[[bytes], object]

#: Seconds that a measured time counts as at least.
_FLOOR = 0.004
#: The ratio from which a step is not linear: linear is 4, n log n below 5, quadratic 16. One that
#: is almost that is measured again, so often.
LARGE, _DOUBTFUL, _AGAIN = 10.0, 8.0, 5


def of_text(unit: str, before: str = "", after: str = "") -> Make:
    """Return messages whose text repeats a unit."""
    size = len(unit.encode())

    def make(bytes_: int) -> bytes:
        text = before + unit * (bytes_ // size) + after
        return json.dumps({"text": text}, ensure_ascii=False).encode()

    return make


def _halves(*units: str) -> Make:
    """Return messages whose text repeats one unit after the other."""

    def make(bytes_: int) -> bytes:
        share = bytes_ // len(units)
        text = "a" + "".join(unit * (share // len(unit.encode())) for unit in units)
        return json.dumps({"text": text}, ensure_ascii=False).encode()

    return make


def of_bytes(unit: bytes, before: bytes, after: bytes = b"}") -> Make:
    """Return messages that repeat bytes."""
    return lambda bytes_: before + unit * (bytes_ // len(unit)) + after


def _counted(bytes_: int) -> bytes:
    """Return a message with many fields, each with a name of its own."""
    fields = {f"f{number}": 0 for number in range(bytes_ // 13)}
    return json.dumps({"text": "a", "dedup": 1, **fields}).encode()


_DEEP = b'{"text":"a","x":[' + b"[]," * (MAX_DEPTH + 1) + b'"'

#: What a text can repeat that is hard to normalise.
CHARACTERS: dict[str, Make] = {
    "combining marks of two classes": _halves("\u0301", "\u0316"),
    "combining marks of three classes, in turn": of_text("\u0345\u0301\u0316", "q"),
    "combining marks of one class": of_text("\u0301", "q"),
    "letters with 40 marks each": of_text("a" + "\u0301\u0316" * 20),
    "letters with 100 marks each": of_text("a" + "\u0301\u0316" * 50),
    "marks that are two marks": of_text("\u0344\u0316", "q"),
    "Tibetan marks that fall apart": of_text("\u0f73\u0f81\u0316", "q"),
    "marks that become a letter": of_text("\u0345\u0316", "α"),
    "marks between invisible characters": of_text("\u0301\u200b\u0316\ufe0f", "q"),
    "marks around lone surrogates' place": of_text("\ufffd\u0316\u0301", "q"),
    "Greek letters with three marks": of_text("\u1f82\u0316", ""),
    "Thai marks out of order": of_text("\u0e48\u0e38", "ก"),
    "half-width voiced marks": of_text("\uff9e\u0316", "\uff76"),
    "Hangul jamo, leading": of_text("\u1100"),
    "Hangul jamo, vowels": of_text("\u1161", "\u1100"),
    "Hangul jamo, trailing": of_text("\u11a8", "가"),
    "Hangul jamo, syllables": of_text("\u1100\u1161\u11a8"),
    "starters that join the one before": of_text("\u09be", "\u09c7"),
    "expansions to 18 characters": of_text("\ufdfa"),
    "expansions to 18, apart": of_text("\ufdfaa"),
    "expansions and marks": of_text("\ufdfa\u0301\u0316"),
    "ellipses": of_text("…"),
    "letters that casefolding expands": of_text("\u0390ß"),
    "capital sigmas": of_text("Σ\u0301"),
    "default-ignorables": of_text("\u200b", "é"),
    "default-ignorables between letters": of_text("e\u200b"),
    "variation selectors and tags": of_text("\ufe0f\U000e0041", "é"),
    "unassigned, each between ligatures": of_text("ﬁ\u0378"),
    "unassigned between marks": of_text("\u0301\u0316\u0378", "q"),
}
#: What a text can repeat that is hard to cut and to compare.
SHAPES: dict[str, Make] = {
    "one token": of_text("a"),
    "one token, not ASCII": of_text("é"),
    "no token": of_text("."),
    "no token, not ASCII": of_text("。"),
    "white space": of_text(" \t", "a", "b"),
    "white space, not ASCII": of_text("\u3000 ", "é", "b"),
    "all shingles equal": of_text("a "),
    "all shingles equal, Han": of_text("漢"),
    "words of one letter": of_text("a b c d e f g "),
    "empty lines": of_text("\n", "a"),
    "lines of a ligature": of_text("ﬁ\n"),
    "emoji": of_text("\U0001f469\u200d"),
    "flags": of_text("\U0001f1e6"),
}
#: What a text can repeat that the steps of ``clean`` look at.
MARKUP: dict[str, Make] = {
    "tags that never end": of_text("<a"),
    "tags": of_text("<a>"),
    "tags with open quotes": of_text('<a b="'),
    "tags with quotes of two kinds": of_text("<a b=\"'"),
    "attributes": of_text(" a=b", "<a"),
    "attributes with spaces behind": of_text(" =  ", "<a"),
    "angle brackets": of_text("<"),
    "comments that never end": of_text("<!--"),
    "declarations that never end": of_text("<!"),
    "CDATA that never ends": of_text("<![CDATA["),
    "scripts that never end": of_text("<script>"),
    "ends of scripts that never end": of_text("</script ", "<script>"),
    "ampersands": of_text("&"),
    "character references": of_text("&#1234567;"),
    "references of 19 digits": of_text("&#1234567890123456789"),
    "a reference of endless digits": of_text("9", "&#"),
    "names that are no references": of_text("&abcdefghijklmnopqrstuvwxyzabcdef"),
    "addresses without an end": of_text("http://"),
    "full stops behind an address": of_text(".", "www."),
    "mail signs": of_text("a@"),
    "a mail address of labels": of_text("a.", "a@", "@"),
    "digits": of_text("9"),
    "digits and joiners": of_text("1-"),
    "joiners": of_text("-", "1"),
    "signs": of_text("+1 "),
    "multipliers": of_text("千", "1"),
}
#: What a message can repeat around its text.
MESSAGES: dict[str, Make] = {
    "escaped quotes in a string that never ends, deep": of_bytes(b'\\"', _DEEP, b""),
    "escaped quotes, deep": of_bytes(b'\\"', _DEEP, b'"]}'),
    "back slashes, deep": of_bytes(b"\\\\", _DEEP, b'"]}'),
    "empty strings, deep": of_bytes(b'"",', _DEEP + b'",', b"1]}"),
    "arrays side by side": of_bytes(b"[],", b'{"text":"a","x":[', b"1]}"),
    "arrays in one another": of_bytes(b"[", b'{"text":"a","x":'),
    "objects in one another": of_bytes(b'{"":', b'{"text":"a","x":'),
    "escapes of marks": of_bytes(rb"\u0301\u0316", b'{"text":"a', b'"}'),
    "escapes of lone surrogates": of_bytes(rb"\ud800", b'{"text":"a', b'"}'),
    "escaped slashes": of_bytes(rb"\/", b'{"text":"', b'"}'),
    "fields of names of their own": _counted,
    "one field again and again": of_bytes(b'"text":"b",', b"{", b'"text":"c"}'),
    "the annotation again and again": of_bytes(b'"dedup":1,', b'{"text":"a",', b'"z":1}'),
    "almost the annotation": of_bytes(b"dedup ", b'{"text":"a","x":"', b'"}'),
    "escapes that could spell the annotation": of_bytes(rb"\\u00", b'{"text":"a","x":"', b'"}'),
    "white space around": of_bytes(b" ", b'{"text":"a"}', b""),
    "white space before the brace": of_bytes(b" ", b'{"text":"a"'),
    "id of digits": of_bytes(b"9", b'{"text":"a","id":'),
    "time of digits": of_bytes(b"9", b'{"text":"a","at":'),
    "time of decimals": of_bytes(b"123456789", b'{"text":"a","at":0.'),
    "time with an endless exponent": of_bytes(b"9", b'{"text":"a","at":1e'),
    "time of digits as a string": of_bytes(b"9", b'{"text":"a","at":"', b'"}'),
    "time of endless fractions": of_bytes(b"9", b'{"text":"a","at":"2026-01-01T00:00:00.', b'"}'),
    "rank of digits": of_bytes(b"9", b'{"text":"a","rank":'),
    "rank between two floats": of_bytes(b"0", b'{"text":"a","rank":9007199254740993.', b"1}"),
    "rank of digits that are left out": of_bytes(b"9", b'{"text":"a","rank":9', b"e-400000}"),
    "origin": of_bytes(b"o", b'{"text":"a","origin":"', b'"}'),
}
CLASSES: dict[str, Make] = {**CHARACTERS, **SHAPES, **MARKUP, **MESSAGES}

_FIELDS: dict[str, Any] = {
    "time_field": "at",
    "rank_field": "rank",
    "origin_field": "origin",
}
#: Settings that take other ways through the program, and the classes that are tried with each.
WAYS: dict[str, tuple[dict[str, Any], Mapping[str, Make]]] = {
    "defaults": ({}, CHARACTERS | SHAPES | MESSAGES),
    "cleaned": ({"clean": "markup,urls,numbers,boilerplate"}, MARKUP | SHAPES),
    "SimHash": (
        {"method": "simhash", "simhash_bits": 128, "weights": "one", "shingle": "char:5"},
        SHAPES,
    ),
    "classic": ({"method": "fused", "minhash": "classic", "punctuation": "keep"}, SHAPES),
    "lcs": ({"verify_by": "text", "measure": "lcs"}, SHAPES),
    "edit": ({"verify_by": "text", "measure": "edit"}, SHAPES),
    "cosine of all": ({"verify_by": "shingles", "measure": "cosine"}, SHAPES),
    "cosine of a sample": ({"verify_by": "mod", "measure": "cosine"}, SHAPES),
    "Bloom filters": ({"verify_by": "bloom", "measure": "dice"}, SHAPES),
}


def pairs() -> Iterator[tuple[str, str]]:
    """Yield each way with each of its classes."""
    for way, (_, classes) in WAYS.items():
        yield from ((way, name) for name in classes)


def decide(way: str, *, near: bool = True) -> Step:
    """Return what takes a message from bytes to its decision, and that of a near copy."""
    settings = _settings(way)
    decode = Decoder(settings).decode
    deduplicator = Deduplicator(settings)
    numbers = count()

    def step(value: bytes) -> None:
        try:
            document = decode(value, fallback_id=next(numbers), fallback_time=0.0)
            documents = [document]
            if near:
                documents.append(Document(next(numbers), document.text + " z", document.time))
            for decision in deduplicator.decide(documents):
                annotate(value, decision)
        except Poison:
            return

    step(b'{"text": "warm, \xc3\xa9 and\xcc\x81\xef\xac\x81"}')
    return step


#: Bytes of a character of ``colliding``.
_HAN_BYTES = 3


def colliding(bytes_: int, seed: int = 0) -> str:
    """Return a text of characters that RapidFuzz keeps in one place of its hash tables."""
    numbers = np.random.default_rng(seed).integers(0, 60, bytes_ // _HAN_BYTES)
    return (0x4E00 + 128 * numbers).astype("<u4").tobytes().decode("utf-32-le")


def align(measure: Measure) -> Step:
    """Return what keeps two texts and compares them, whatever they come to; one is given."""
    comparison = TextComparison(measure, 0.0)
    none = np.zeros(0, np.uint64)

    def step(value: bytes) -> None:
        pair = [value, colliding(len(value), 1).encode()]
        left, right = (comparison.pack(none, text) for text in pair)
        comparison.scores([left], [right])

    return step


def read(way: str) -> Step:
    """Return what decodes a message and fingerprints its text, which leaves nothing behind."""
    settings = _settings(way)
    decode, fingerprinter = Decoder(settings).decode, Fingerprinter(settings)

    def step(value: bytes) -> None:
        with suppress(Poison):
            document = decode(value, fallback_id="", fallback_time=0.0)
            fingerprinter.fingerprint([document.text], [document.origin])

    return step


@cache
def _settings(way: str) -> Settings:
    options = _FIELDS | {"max_document_bytes": 100_000_000} | WAYS[way][0]
    if "boilerplate" in options.get("clean", ""):
        options["boilerplate_file"] = _boilerplate(options["clean"])
    return Settings.model_validate(options)


def _boilerplate(clean: str) -> Path:
    """Write a file of lines that texts do not have, which makes every line be looked up."""
    folder = Path(tempfile.mkdtemp(prefix="stream-dedup-"))
    settings = Settings(clean=clean.removesuffix(",boilerplate"))
    learner = BoilerplateLearner(settings, folder)
    learner.add([Document(number, "Share this page") for number in range(3)])
    path = folder / "boilerplate"
    path.write_bytes(learner.learn(2, 0.5).encode())
    return path


def seconds(step: Step, value: bytes, times: int = 1) -> float:
    """Return the least CPU time of this thread that a step took."""
    taken = []
    for _ in range(times):
        began = time.thread_time()
        step(value)
        taken.append(time.thread_time() - began)
    return min(taken)


def growth(step: Step, make: Make, sizes: Sequence[int]) -> float:
    """Return the largest ratio of the times that a step takes for one size and for a fourth of it.

    Times below ``_FLOOR`` count as that: it is what fixed costs and chance come to. A ratio that
    seems large is measured again, since whatever disturbs a measurement makes it longer.
    """
    largest, before = 0.0, make(sizes[0])
    least = seconds(step, before, 3)
    for size in sizes[1:]:
        value = make(size)
        taken = seconds(step, value)
        for _ in range(_AGAIN):
            if taken < _DOUBTFUL * max(least, _FLOOR):
                break
            least, taken = min(least, seconds(step, before)), min(taken, seconds(step, value))
        largest = max(largest, taken / max(least, _FLOOR))
        if largest >= _DOUBTFUL:
            break
        before, least = value, taken
    return largest
