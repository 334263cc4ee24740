"""The text of an HTML or XML document: tags, comments, scripts and styles out, references decoded.

A tokeniser after the HTML standard (WHATWG, section 13.2.5 "Tokenization", 13.5 "Named character
references"), without the building of a tree, which text needs not. It is our own because what it
gives goes into every fingerprint, and may never change: the parsers that exist change what they
make of broken markup between releases, patch releases among them, and rightly so. Where it differs
from the standard:

- a tag that never ends is text, and so is all behind it ("a <b" is no tag in most texts);
- a CDATA section is text wherever it stands, as in XML;
- a script or style that ends in ``/>`` is empty, as in XML.

Each step of the scanner goes on where the one before ended, and nothing is looked for twice, so the
time is linear in the text, whatever is in it.
"""

from __future__ import annotations

import html
import re

#: Elements that flow within a line; around all others a line ends.
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q "  # noqa: SIM905
    "rb rp rt ruby s samp small span strike strong sub sup time tt u var wbr".split()
)
#: Elements whose content is no text, and where it ends.
_RAW = {
    name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII)
    for name in ("script", "style")
}

#: White space as the standard has it.
_GAP = r"[\t\n\f\r ]*+"
_OPENING = re.compile(
    r"<(?:(?P<comment>!--)|(?P<cdata>!\[CDATA\[)|(?P<other>[!?])"
    r"|/?(?P<name>[A-Za-z][^\t\n\f\r />]*)"
    # What ``_tag_end`` does, for tags of some attributes with their quotes closed: nearly all.
    rf"""(?P<tag>(?:[^>=]++|={_GAP}(?:"[^"]*+"|'[^']*+')|=(?!{_GAP}["'])){{0,20}}>)?)"""
)
#: Groups that a tag ends with.
_TAG = frozenset(("name", "tag"))
_COMMENT_END = re.compile(r"--!?>")
#: What may stand right behind ``<!--`` and end the comment at once.
_EMPTY_COMMENT = re.compile(r"-?>")
_TAG_STOP = re.compile(rf""">|={_GAP}["']""")
#: Numbers that no code point has, with more digits than ``int`` takes in linear time.
_ENDLESS = re.compile(r"&#(?:[0-9]{20,}|[xX][0-9A-Fa-f]{20,});?")


def strip_markup(text: str) -> str:
    """Return the text of a document with markup; a text without any comes back as it is.

    Tags of elements that do not flow within a line become line breaks, all others nothing.
    """
    parts, place = [], 0
    while found := _OPENING.search(text, place):
        end = _end(text, found)
        if end is None:
            break
        parts.append(_decode(text[place : found.start()]))
        if found.lastgroup in _TAG:
            parts.append("" if found["name"].lower() in _INLINE else "\n")
        elif found.lastgroup == "cdata":
            parts.append(text[found.end() : end].removesuffix("]]>"))
        place = end
    parts.append(_decode(text[place:]))
    return "".join(parts)


def _end(text: str, found: re.Match[str]) -> int | None:
    """Return where what has been opened ends, or None if it is text after all."""
    kind, place = found.lastgroup, found.end()
    if kind in _TAG:
        tag_end = place if kind == "tag" else _tag_end(text, place)
        raw = _RAW.get(found["name"].lower())
        if raw is None or tag_end is None or text.startswith("</", found.start()):
            return tag_end
        return _raw_end(text, tag_end, raw)
    if kind == "comment":
        match = _EMPTY_COMMENT.match(text, place) or _COMMENT_END.search(text, place)
        return match.end() if match else len(text)
    if kind == "cdata":
        end = text.find("]]>", place)
        return end + 3 if end >= 0 else len(text)
    # A document type, a processing instruction, or neither.
    end = text.find(">", place)
    return end + 1 if end >= 0 else None


def _raw_end(text: str, place: int, closing_tag: re.Pattern[str]) -> int:
    """Return the end of a script or style whose start tag ends here."""
    if text.startswith("/>", place - 2):
        return place
    closing = closing_tag.search(text, place)
    return (closing and _tag_end(text, closing.end())) or len(text)


def _tag_end(text: str, place: int) -> int | None:
    """Return the end of a tag from behind its name; ``>`` in a quoted value does not end it."""
    while stop := _TAG_STOP.search(text, place):
        place = stop.end()
        if stop[0] == ">":
            return place
        # A quote that is never closed is none.
        place = max(place, text.find(stop[0][-1], place) + 1)
    return None


def _decode(text: str) -> str:
    """Decode character references. The list of names is closed by the standard."""
    return html.unescape(_ENDLESS.sub("\ufffd", text)) if "&" in text else text
