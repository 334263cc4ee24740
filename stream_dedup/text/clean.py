"""Cleaning: noise of pages taken out of texts before they are normalised, in steps of one's choice.

Two copies of an article differ in the page around them: share links, view counters, the time, the
site's menu. Broder, Glassman, Manasse and Zweig 1997 (section 2) therefore shingle a canonical form
without markup. The steps, applied in the order given by the setting ``clean``:

- ``markup``: tags, comments, scripts and styles out, character references decoded (``markup``);
- ``urls``: web addresses (with ``http``, ``https`` or ``ftp`` before, or beginning with ``www.``)
  and e-mail addresses become a space;
- ``numbers``: numbers become nothing, see ``drop_numbers``;
- ``boilerplate``: lines that many documents of one origin have in common are dropped, after a file
  learned before (``boilerplate``).

What is cleaned away counts nowhere, in the exact comparison neither. No step raises for any text,
and each takes time linear in it: a pattern either matches what it has read, or gives it up at a
place that no later attempt starts before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings
from stream_dedup.text.boilerplate import Boilerplate
from stream_dedup.text.markup import strip_markup
from stream_dedup.text.outline import MULTIPLIER, WORD_CLASS, outline, replace

#: A step: texts and, for each, its origin, to texts.
Step = Callable[[Sequence[str], Sequence[str]], list[str]]

# Patterns are over outlines. The first character is a class of its own wherever that is possible:
# the search for it is then a fast one.

_ADDRESS = WORD_CLASS + r"\-~/#@$&*+=%"
_URL = re.compile(
    r"[HhFfWw](?:(?:(?<=[Hh])[Tt][Tt][Pp][Ss]?|(?<=[Ff])[Tt][Pp])://"
    rf"|(?<=[Ww])(?<![{WORD_CLASS}].)[Ww][Ww]\.)"
    # A full stop or a bracket at the end belongs to the sentence.
    rf"[{_ADDRESS}.:?!\[\]();,']*[{_ADDRESS}]"
)
_LOCAL = WORD_CLASS + r".+%\-"
_LABEL = WORD_CLASS + r"\-"
_MAIL = re.compile(rf"(?<![{_LOCAL}])[{_LOCAL}]++@[{_LABEL}][{_LABEL}.]*\.[{_LABEL}]+")

_JOINERS = r"\-+.,:/'_T"
_NUMBER = re.compile(
    rf"[+\-0-9](?:(?<=[0-9])|(?<![{WORD_CLASS}].)(?=[0-9]))"
    rf"(?:[0-9{_JOINERS}]*[0-9])?"
    rf"(?:(?:[kKmMbBZ]|st|nd|rd|th)(?![{WORD_CLASS}])|{MULTIPLIER}+"
    rf"|[ ]?[aApP](?:[mM]|\.[mM]\.)(?![{WORD_CLASS}]))?"
)


def drop_urls(text: str) -> str:
    """Make web and e-mail addresses spaces.

    An address goes on over letters of any script written with spaces, and ends at the first Han,
    Kana or Thai character: in those scripts a sentence goes on behind it without a space.
    """
    shape = outline(text)
    if "://" in shape or "www." in shape.lower():
        text = replace(_URL, " ", text)
    if "@" in shape:
        text = replace(_MAIL, " ", text)
    return text


def drop_numbers(text: str) -> str:
    """Take numbers out, so that texts which differ only in numbers become equal.

    A number begins and ends with a digit (of any script, also within a word) and has digits and
    ``- + . , : / ' _ T`` between: ``1,234``, ``12:30``, ``2024-05-01T09:30``, ``192.168.0.1``. A
    sign before it belongs to it unless a word precedes, and so does one of these behind it: k, K,
    m, M, b, B, Z, st, nd, rd, th at the end of a word; any of 千万萬億亿兆천만억조; am or pm.
    Words for numbers, and names of months, stay.
    """
    return replace(_NUMBER, "", text)


def _of_each(function: Callable[[str], str]) -> Step:
    return lambda texts, _origins: [function(text) for text in texts]


_STEPS: dict[str, Step] = {
    "markup": _of_each(strip_markup),
    "urls": _of_each(drop_urls),
    "numbers": _of_each(drop_numbers),
}


class Cleaner:
    """The chain of steps that the settings name.

    Attributes:
        learned: what the steps take from files, by the setting that names the file: a digest of
            the content, for the configuration version.
    """

    def __init__(self, settings: Settings) -> None:
        """Read what the steps need.

        Raises:
            SettingsError: the boilerplate file is missing, damaged, or was learned after other
                steps; or it is named without the step that takes it.
        """
        self.learned: dict[str, str] = {}
        self._steps: list[Step] = []
        if settings.boilerplate_file is not None and "boilerplate" not in settings.clean_steps:
            msg = "boilerplate_file: it has no effect without the step. Add boilerplate to clean."
            raise SettingsError(msg)
        for name in settings.clean_steps:
            self._steps.append(_STEPS.get(name) or self._boilerplate(settings))

    def clean(self, texts: Sequence[str], origins: Sequence[str] | None = None) -> Sequence[str]:
        """Clean texts.

        Args:
            texts: the texts.
            origins: what each comes from; the unnamed origin if left out.
        """
        named = origins if origins is not None else [""] * len(texts)
        for step in self._steps:
            texts = step(texts, named)
        return texts

    def _boilerplate(self, settings: Settings) -> Step:
        path = settings.boilerplate_file
        if path is None:
            msg = (
                "clean: the step boilerplate needs a file of lines. Make one with stream-dedup "
                "learn boilerplate, and name it with boilerplate_file."
            )
            raise SettingsError(msg)
        learned = _read(path)
        before = steps_before_boilerplate(settings)
        if learned.steps != before:
            msg = (
                f"boilerplate_file: the lines in {path} were learned after the steps "
                f"{learned.steps or '(none)'}, and clean has {before or '(none)'} before "
                "boilerplate. Learn them again with the same clean."
            )
            raise SettingsError(msg)
        self.learned["boilerplate_file"] = learned.digest
        return learned.drop


def steps_before_boilerplate(settings: Settings) -> str:
    """Return the steps that come before ``boilerplate``, or all if it is not among them."""
    return ",".join(settings.clean_steps).partition("boilerplate")[0].rstrip(",")


def _read(path: Path) -> Boilerplate:
    try:
        return Boilerplate.decode(path.read_bytes())
    except OSError as error:
        reason = error.strerror
    except ValueError as error:
        reason = str(error)
    msg = (
        f"boilerplate_file: {path} cannot be used: {reason}. Make it with stream-dedup learn "
        "boilerplate, or name another one."
    )
    raise SettingsError(msg)
