"""Document frequencies: learned on the command line, kept in a file, and used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli import learn_frequencies
from stream_dedup.cli.main import cli
from stream_dedup.errors import InputError, SettingsError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.frequencies import MOST_DOCUMENTS, Frequencies, read_frequencies
from stream_dedup.fingerprint.hashing import frequencies_origin
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.fingerprint.weights import distinct
from stream_dedup.settings import Settings
from stream_dedup.text.sealed import unseal
from stream_dedup.types import Method

FOOTER = "all rights reserved by the publisher of this site"
TEXTS = [f"story {number} has words of its own {number * 7} {FOOTER}" for number in range(40)]

pytestmark = pytest.mark.usefixtures("alone")


def lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def learn(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["learn", "frequencies", *arguments], input=stdin)


def learned(texts: list[str], *arguments: str) -> Frequencies:
    result = learn("-", "-o", "some.freq", *arguments, stdin=lines(texts))
    assert result.exit_code == 0, result.output
    return read_frequencies(Path("some.freq"))


class TestLearning:
    def test_it_counts_the_documents_that_have_each_shingle(self) -> None:
        found = learned([*TEXTS, f"{FOOTER} {FOOTER}"])

        shingles = Fingerprinter(Settings()).shingles([FOOTER, TEXTS[3]])
        assert found.documents == 41
        assert found.counts(distinct(shingles).hashes[: shingles.starts[1]]).tolist() == [41] * 7
        assert found.counts(shingles.hashes[shingles.starts[1] :]).min() == 1

    def test_extending_is_learning_at_once(self) -> None:
        whole = learned(TEXTS).digest()
        learned(TEXTS[:15])

        extended = learned(TEXTS[15:], "--extend", "some.freq")

        assert extended.digest() == whole

    def test_the_file_is_written_anew_now_and_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = []
        write = Frequencies.write

        def watched(frequencies: Frequencies, path: Path) -> None:
            write(frequencies, path)
            sizes.append(read_frequencies(path).documents)

        monkeypatch.setattr(Frequencies, "write", watched)
        monkeypatch.setattr(learn_frequencies, "_BATCH", 5)

        learned(TEXTS, "--every", "15")

        assert sizes == [15, 30, 40]

    def test_what_was_learned_before_an_interrupt_is_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add = Frequencies.add

        def interrupted(frequencies: Frequencies, hashes: Any, documents: int) -> None:
            if frequencies.documents == 20:
                raise KeyboardInterrupt
            add(frequencies, hashes, documents)

        monkeypatch.setattr(Frequencies, "add", interrupted)
        monkeypatch.setattr(learn_frequencies, "_BATCH", 5)

        result = learn("-", "-o", "some.freq", stdin=lines(TEXTS))

        assert result.exit_code == 130
        assert read_frequencies(Path("some.freq")).documents == 20

    def test_a_line_that_is_no_document_ends_it_or_is_left_out(self) -> None:
        stdin = lines(TEXTS[:1]) + b"not json\n"

        refused = learn("-", "-o", "some.freq", stdin=stdin)
        skipped = learn("-", "-o", "some.freq", "--skip", "--json", stdin=stdin)

        assert refused.exit_code == 65
        assert "stdin:2 is not a document" in refused.stderr
        summary = json.loads(skipped.stdout)
        assert (summary["documents"], summary["skipped"]) == (1, 1)
        assert summary["digest"] == read_frequencies(Path("some.freq")).digest()

    def test_nothing_cannot_be_learned_from(self) -> None:
        result = learn("-", "-o", "some.freq", stdin=b"\n")

        assert result.exit_code == 65
        assert "no document to learn from" in result.stderr

    def test_other_shingles_cannot_extend_a_file(self) -> None:
        learned(TEXTS)

        result = learn(
            "-", "-o", "b", "--extend", "some.freq", "--shingle", "char:5", stdin=lines(TEXTS)
        )

        assert result.exit_code == 2
        assert "learned with other settings" in result.stderr
        assert "it has word:3" in result.stderr

    def test_more_documents_than_can_be_counted_are_refused(self) -> None:
        frequencies = Frequencies(frequencies_origin(Settings()), 16)
        frequencies.documents = MOST_DOCUMENTS

        with pytest.raises(InputError, match="Begin a new file"):
            frequencies.add(np.array([1], np.uint64), 1)

    def test_a_file_that_cannot_be_written_is_named(self) -> None:
        result = learn("-", "-o", "absent/some.freq", stdin=lines(TEXTS))

        assert result.exit_code == 65
        assert "absent/some.freq cannot be written" in result.stderr


class TestFile:
    def test_it_is_small_and_says_what_it_is(self) -> None:
        learned(TEXTS)

        content = Path("some.freq").read_bytes()

        about = msgspec.msgpack.decode(unseal(content))
        assert len(content) < 20_000
        assert about.pop("counts")
        assert about.pop("seed")
        assert about == {
            "format": "stream-dedup document frequencies",
            "version": 1,
            "shingle": "word:3",
            "documents": 40,
            "shingles": 40 * 15,
            "cells": 1 << 20,
        }

    @pytest.mark.parametrize(
        ("damage", "reason"),
        [
            (lambda _: b"", "Input data was truncated"),
            (lambda _: b"not one", "Expected"),
            (lambda content: content[:-100], "truncated"),
            (lambda content: content.replace(b"version\x01", b"version\x02"), "it is damaged"),
            (
                lambda content: unseal(content).replace(b"version\x01", b"version\x02"),
                "in version 2",
            ),
        ],
    )
    def test_another_file_is_refused(self, damage: Callable[[bytes], bytes], reason: str) -> None:
        learned(TEXTS)
        path = Path("some.freq")
        path.write_bytes(damage(path.read_bytes()))

        with pytest.raises(
            SettingsError, match=rf"some\.freq is not a file of.*{reason}.*Make one"
        ):
            read_frequencies(path)

    def test_a_missing_file_is_named(self) -> None:
        with pytest.raises(SettingsError, match=r"absent\.freq.*No such file"):
            read_frequencies(Path("absent.freq"))

    def test_frequencies_of_another_seed_are_refused(self) -> None:
        learned(TEXTS)
        settings = Settings.model_validate(
            {
                "method": "simhash",
                "weights": "tfidf",
                "frequencies_file": "some.freq",
                "seed": "secret",
            }
        )

        with pytest.raises(SettingsError, match="seed"):
            Fingerprinter(settings)


class TestUse:
    def test_what_every_document_has_counts_little(self) -> None:
        """Two stories under one footer: by frequency they are further apart."""
        learned(TEXTS)
        footers = " ".join([FOOTER] * 3)
        pair = [f"the river rose again last night {footers}", f"a new tram line opened {footers}"]
        plain = Settings(method=Method.SIMHASH)
        weighted = plain.model_copy(
            update={"weights": "tfidf", "frequencies_file": Path("some.freq")}
        )

        def distance(settings: Settings) -> float:
            sketches = SimHash(settings).sketches(Fingerprinter(settings).shingles(pair))
            return float(SimHash(settings).compare(sketches[:1], sketches[1:])[0][0])

        assert distance(weighted) > distance(plain) + 5

    def test_a_run_uses_them(self) -> None:
        learned(TEXTS)
        arguments = ["run", "-", "--method", "simhash", "-q", "--weights", "tfidf"]

        result = CliRunner().invoke(
            cli, [*arguments, "--frequencies-file", "some.freq"], input=lines(TEXTS[:2] * 2)
        )

        assert result.exit_code == 0, result.output
        statuses = [json.loads(line)["dedup"]["status"] for line in result.stdout.splitlines()]
        assert statuses[2:] == ["exact_duplicate"] * 2
