"""What each step of cleaning takes out, and what it leaves."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import SettingsError
from stream_dedup.explain import compare, look_up
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.hashing import frequencies_origin
from stream_dedup.setting_types import CLEAN_STEPS
from stream_dedup.settings import Settings
from stream_dedup.text.boilerplate import Boilerplate, Learned, line_keys
from stream_dedup.text.clean import Cleaner, drop_numbers, drop_urls
from stream_dedup.text.markup import strip_markup
from stream_dedup.text.sealed import seal, unseal
from stream_dedup.types import Document, Status

#: Characters of a hostile text. A step that took quadratic time would not be done for hours.
HOSTILE = 2_000_000


def boilerplate(*lines: str, origin: str = "", steps: str = "") -> Boilerplate:
    keys = np.sort(line_keys([lines], [origin]))
    return Boilerplate(
        steps, 2, 0.0, {origin: Learned(9, len(lines))}, keys.astype("<u8").tobytes()
    )


class TestMarkup:
    @pytest.mark.parametrize(
        ("page", "text"),
        [
            ("", ""),
            ("plain text, 1 < 2 and 3 > 2", "plain text, 1 < 2 and 3 > 2"),
            ("<p>One</p><p>two</p>", "\nOne\n\ntwo\n"),
            ("a <b>wo</b>rd and a <a href='x'>li</a>nk", "a word and a link"),
            ("one<br>two<BR/>three<br />four", "one\ntwo\nthree\nfour"),
            ("日<ruby>本<rt>ほん</rt></ruby>", "日本ほん"),
            ('<a title="1 > 0" href=/x>y</a>', "y"),
            ("<a title = 'it is \"so\" > '>y</a>", "y"),
            ("<p title=\"don't>mind</p>", "\nmind\n"),
            ("<p don't>mind</p>", "\nmind\n"),
            ("x<!-- a <b> -- -->y<!-->z<!--->!", "xyz!"),
            ("x<!-- a --!>y", "xy"),
            ("x<!-- never closed <p>y", "x"),
            ("<script>if (a < b) alert('</p>')</script>text", "\ntext"),
            ("<STYLE media=x>p {}</style\n>text", "\ntext"),
            ("<script>x</scripts></script>y", "\ny"),
            ("<script>never closed", "\n"),
            ("<script>x</script", "\n"),
            ("<script src=x />text</p>", "\ntext\n"),
            ("<scripts>text", "\ntext"),
            ("<!DOCTYPE html>\n<?xml version='1.0'?>text", "\ntext"),
            ("<item><![CDATA[<p>a &amp; b</p>]]></item>", "\n<p>a &amp; b</p>\n"),
            ("x<![CDATA[never closed", "xnever closed"),
            ("&amp;&lt;&#65;&#x42;&eacute;&NotEqualTilde;", "&<ABé≂̸"),
            ("&copy 2024 &notin &noti; AT&T &unknown;", "© 2024 ¬in ¬i; AT&T &unknown;"),
            ("&#0;&#x110000;&#xD800;&#150;", "\ufffd\ufffd\ufffd–"),
            ("&#" + "9" * 5_000 + "; &#x" + "0" * 5_000 + "41;", "\ufffd \ufffd"),
            ("&amp;lt;b&amp;gt;", "&lt;b&gt;"),
            ("&l<b>t;</b>", "&lt;"),
            ("a <b and the rest > ", "a  "),
            ("a <b and the rest", "a <b and the rest"),
            ("<p>a</p> <b and <i>x</i", "\na\n x</i"),
            ("I </3 you <3", "I </3 you <3"),
            ("<über> <中> <_x> <1>", "<über> <中> <_x> <1>"),
            ("<é\ud800\x00<p\ud800>x", "<é\ud800\x00\nx"),
        ],
    )
    def test_leaves_the_text(self, page: str, text: str) -> None:
        assert strip_markup(page) == text

    def test_again_it_reads_what_had_been_escaped(self) -> None:
        feed = html.escape("<p>One &amp; <b>two</b></p>")

        once, twice = (
            list(Cleaner(Settings(clean=chain)).clean([feed]))
            for chain in ("markup", "markup,markup")
        )

        assert once == ["<p>One &amp; <b>two</b></p>"]
        assert twice == ["\nOne & two\n"]


class TestUrls:
    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("no address here: a/b, x.org, e.g. this", "no address here: a/b, x.org, e.g. this"),
            ("see https://x.org/a?b=1#c, and", "see  , and"),
            ("(http://x.org/a_(b)).", "( ))."),
            ("FTP://x.org HTTPS://X.ORG ftp://[::1]/", "     "),
            ("www.x.org. WWW.X.ORG! awww.sweet _www.x", " .  ! awww.sweet _www.x"),
            ("seehttps://x.org", "see "),
            ("请看https://t.co/aB1这个", "请看 这个"),
            ("ดูhttps://t.co/aB1ที่นี่", "ดู ที่นี่"),
            ("https://ru.wikipedia.org/wiki/Москва и", "  и"),
            ("ｈｔｔｐ：／／ｘ．ｏｒｇ です", "  です"),
            ("http:// https://. www. www", "http:// https://. www. www"),
            ("write to a.b+c@mail.example.org. or", "write to  . or"),
            ("mailto:a@b.cz, ä@ö.de; a@b @x.y a@.b", "mailto: ,  ; a@b @x.y a@.b"),
            ("連絡先info＠example．jpまで", "連絡先 まで"),
            ("https://user@host:80/x", " "),
            ("\ud800http://x\ud800", "\ud800 \ud800"),
        ],
    )
    def test_become_a_space(self, text: str, left: str) -> None:
        assert drop_urls(text) == left

    def test_a_text_with_one_equals_the_text_without(self) -> None:
        printer = Fingerprinter(Settings(clean="urls"))

        digests = printer.fingerprint(["see https://t.co/1 this", "see www.x.org/2 this"]).digests

        assert digests[0] == digests[1]
        assert printer.fingerprint(["see this"]).digests[0] == digests[0]


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("no number: a-b, T_T, k", "no number: a-b, T_T, k"),
            ("1,234 views", " views"),
            ("1.2k views 3M", " views "),
            ("at 12:30 PM, 9:05 a.m. or 7am", "at ,  or "),
            ("on 2024-05-01T09:30:00.123+02:00 and 2024-05-01 09:30:00Z", "on  and  "),
            ("1st 2nd 3rd 11th 5x 5km", "    x km"),
            ("192.168.0.1:80 10'000 1_000 3/4 7-8 1–2", "     "),
            ("-5 +3 −7 covid-19 a-1", "   covid- a-"),
            ("(5) 5% $5 5. 5, #5", "() % $ . , #"),
            ("mp3 h264 b2b", "mp h b"),
            ("١٬٢٣٤ مشاهدة", " مشاهدة"),
            ("१२:३० बजे", " बजे"),
            ("2024年5月1日 1.2万回", "年月日 回"),
            ("3억 2천만 원", "  원"),
            ("１，２３４ ① ² ½", "   ½"),
            ("5kg 5k_ 5K. 5pm2", "kg k_ . pm"),
            ("三月 XII twelve", "三月 XII twelve"),
            ("1\ud8002", "\ud800"),
            ("1\n2\n", "\n\n"),
        ],
    )
    def test_are_taken_out(self, text: str, left: str) -> None:
        assert drop_numbers(text) == left

    def test_texts_that_differ_only_in_them_become_equal(self) -> None:
        texts = [
            "Posted 12:30 PM, 1,234 views. The 1st of -3 items.",
            "Posted 9:05 am, 8 views. The 22nd of 17 items.",
            "Posted 23:59, 1.2k views. The 3rd of 1 000 items.",
        ]

        assert len(set(Fingerprinter(Settings(clean="numbers")).fingerprint(texts).digests)) == 1
        assert len(set(Fingerprinter(Settings()).fingerprint(texts).digests)) == 3


class TestBoilerplate:
    def test_lines_of_the_origin_are_dropped(self) -> None:
        learned = boilerplate("Menu", "Sign in", origin="x")
        texts = ["ＭＥＮＵ\nNews\r\n sign  IN", "Menu\nNews", "Menu"]

        dropped = learned.drop(texts, ["x", "y", "x"])

        assert dropped == ["News", "Menu\nNews", ""]

    def test_a_text_without_any_is_left_as_it_is(self) -> None:
        assert boilerplate("Menu").drop(["one\r\n\x0btwo\n\n"], [""]) == ["one\r\n\x0btwo\n\n"]

    def test_no_lines_learned_drop_none(self) -> None:
        assert boilerplate().drop(["one", ""], ["", ""]) == ["one", ""]

    @pytest.mark.parametrize("text", ["", "\n\n", " \u200b\n"])
    def test_empty_lines_are_no_lines(self, text: str) -> None:
        assert boilerplate("Menu").drop([text], [""]) == [text]

    def test_the_file_is_read_as_it_was_written(self) -> None:
        learned = boilerplate("Menu", "Sign in", origin="x")

        assert Boilerplate.decode(learned.encode()) == learned

    def test_the_file_says_what_it_is(self) -> None:
        assert b"stream-dedup boilerplate" in boilerplate("Menu").encode()

    @pytest.mark.parametrize("cut", [0, 1, 10, 60, -9, -1])
    def test_part_of_a_file_is_refused(self, cut: int) -> None:
        with pytest.raises(ValueError, match="not all of one"):
            Boilerplate.decode(boilerplate("Menu", "Sign in").encode()[:cut])

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            (b"stream-dedup boilerplate", b"stream-dedup frequencies", "frequencies"),
            (b"\xa7version\x01", b"\xa7version\x02", "boilerplate' 2"),
            (b"min_share\xcb", b"min_sharf\xcb", "damaged"),
        ],
    )
    def test_another_file_is_refused(self, old: bytes, new: bytes, said: str) -> None:
        content = unseal(boilerplate("Menu").encode())

        assert old in content
        with pytest.raises(ValueError, match=said):
            Boilerplate.decode(seal(content.replace(old, new)))

    @pytest.mark.parametrize("keys", [b"\0" * 16, b"\xff" * 8 + b"\0" * 8, b"1234567"])
    def test_damaged_lines_are_refused(self, keys: bytes) -> None:
        damaged = Boilerplate("", 2, 0.0, {}, keys).encode()

        with pytest.raises(ValueError, match=r"damaged|in order"):
            Boilerplate.decode(damaged)


class TestCleaner:
    @pytest.mark.parametrize("step", CLEAN_STEPS)
    def test_every_step_is_known(self, step: str, tmp_path: Path) -> None:
        path = tmp_path / "b"
        path.write_bytes(boilerplate("Menu").encode())
        file = path if step == "boilerplate" else None

        assert list(Cleaner(Settings(clean=step, boilerplate_file=file)).clean([])) == []

    def test_steps_are_taken_in_the_order_given(self, tmp_path: Path) -> None:
        path = tmp_path / "b"
        path.write_bytes(boilerplate("views", origin="x", steps="markup,numbers").encode())
        settings = Settings(clean="markup, numbers ,boilerplate", boilerplate_file=path)

        cleaned = Cleaner(settings).clean(["<p>News</p><p>1,234 views</p>"] * 2, ["x", "y"])

        assert [text.split() for text in cleaned] == [["News"], ["News", "views"]]

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"clean": "boilerplate"}, "needs a file of lines"),
            ({"boilerplate_file": "b"}, "has no effect without the step"),
            ({"clean": "boilerplate", "boilerplate_file": "absent"}, "No such file"),
            ({"clean": "boilerplate", "boilerplate_file": "."}, "Is a directory"),
            ({"clean": "boilerplate", "boilerplate_file": "part"}, "not all of one"),
            ({"clean": "boilerplate", "boilerplate_file": "b"}, "after the steps markup"),
            ({"clean": "urls,boilerplate", "boilerplate_file": "b"}, "clean has urls before"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self,
        settings: dict[str, Any],
        said: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        content = boilerplate("Menu", steps="markup").encode()
        Path("b").write_bytes(content)
        Path("part").write_bytes(content[:-3])

        with pytest.raises(SettingsError, match=said) as caught:
            Fingerprinter(Settings(**settings))

        assert str(caught.value).endswith(".")


class TestConfigurationVersion:
    def test_changes_with_the_steps_and_their_order(self) -> None:
        chains = ["", "markup", "urls", "numbers", "markup,urls", "urls,markup"]

        versions = {Fingerprinter(Settings(clean=chain)).configuration for chain in chains}

        assert len(versions) == len(chains)

    def test_changes_with_the_lines_learned_and_not_with_the_place_of_the_file(
        self, tmp_path: Path
    ) -> None:
        versions = []
        for name, lines in (("a", ["Menu"]), ("b", ["Menu"]), ("c", ["Menu", "Sign in"])):
            (tmp_path / name).write_bytes(boilerplate(*lines).encode())
            settings = Settings(clean="boilerplate", boilerplate_file=tmp_path / name)
            versions.append(Fingerprinter(settings).configuration)

        assert versions[0] == versions[1] != versions[2]


def test_document_frequencies_are_of_one_way_with_punctuation() -> None:
    origins = {
        frequencies_origin(Settings(shingle=shingle, punctuation=punctuation)).shingle
        for shingle in ("word:3", "char:5")
        for punctuation in ("default", "keep", "drop")
    }

    assert origins == {"word:3", "word:3, punctuation keep", "char:5", "char:5, punctuation drop"}


class TestMatching:
    PAGES = (
        "<h1>Harbour bridge</h1><p>The bridge closes at 9:30 on 1 May.</p>",
        "<div class='x'>Harbour bridge</div>\nThe bridge closes at 10:15 on 22 May. &nbsp;",
    )

    def test_what_is_cleaned_away_does_not_count_in_equality(self) -> None:
        documents = [Document(str(number), page) for number, page in enumerate(self.PAGES)]

        with (
            Deduplicator(Settings(clean="markup,numbers")) as cleaning,
            Deduplicator(Settings()) as plain,
        ):
            assert cleaning.decide(documents)[1].status is Status.EXACT_DUPLICATE
            assert plain.decide(documents)[1].status is Status.ORIGINAL

    def test_a_text_of_which_nothing_is_left_matches_nothing(self) -> None:
        with Deduplicator(Settings(clean="urls,numbers")) as deduplicator:
            decisions = deduplicator.decide(
                [Document("a", "https://x.org 17"), Document("b", "https://x.org 17")]
            )

        assert [decision.status for decision in decisions] == [Status.ORIGINAL] * 2

    def test_shingles_are_of_the_cleaned_text(self) -> None:
        cleaned, plain = (Fingerprinter(Settings(clean=steps)) for steps in ("markup", ""))

        shingles = cleaned.shingles(["<p>one two three</p> four"])

        assert shingles.hashes.tolist() == plain.shingles(["one two three four"]).hashes.tolist()

    def test_an_explanation_is_of_the_cleaned_texts(self, tmp_path: Path) -> None:
        (tmp_path / "b").write_bytes(boilerplate("menu", origin="x", steps="markup").encode())
        settings = Settings(clean="markup,boilerplate", boilerplate_file=tmp_path / "b")
        left = Document("l", "<p>Menu</p>one two three four", origin="x")
        right = Document("r", "<i>one</i> two three five")

        with Deduplicator(settings) as deduplicator:
            deduplicator.decide([left])
            found = compare(deduplicator, left, right)
            sightings = look_up(
                deduplicator, deduplicator.index, Document("again", "one two three four")
            )

        assert found.shingles == (2, 2)
        assert found.differences == [("four", "five")]
        assert [sighting.score for sighting in sightings] == [1.0]


def repeated(*pieces: str) -> list[str]:
    return [piece * (HOSTILE // len(piece)) for piece in pieces]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("step", "pieces"),
    [
        (
            strip_markup,
            ("<", "<a ", "<!--", "<!-- >", "<![CDATA[", "<?", "</a", "&", "&#1", "&amp"),
        ),
        (
            strip_markup,
            ("<script>", "<script></script", '<a b="', "<a b='>", "<a =\"'", "= ", "<a b"),
        ),
        (
            drop_urls,
            ("http://", "www.", "www.;", "a@", "a.", "a@b.", "a@b..", "http://a ", "h", "-@"),
        ),
        (drop_numbers, ("1", "1,", "-", "1k", "1 a", "1 am", "-1", "T", "1T", "1.a", "١٬", "1万")),
        (boilerplate("x").drop, ("\n", "x\n", "\r\n", "x")),
    ],
)
def test_time_is_linear_in_a_hostile_text(
    step: Callable[..., object], pieces: tuple[str, ...]
) -> None:
    """It ends at all: quadratic time would be hours, and the time limit is a minute."""
    for text in [*repeated(*pieces), "<a b='" + "<" * HOSTILE, "1" + "," * HOSTILE]:
        if step in (strip_markup, drop_urls, drop_numbers):
            assert isinstance(step(text), str)
        else:
            step([text], [""])
