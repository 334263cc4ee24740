"""Messages that cannot be decided. Pure.

A ``Poison`` has a reason from a short closed list (it becomes a metric label and a header) and a
detail for people, which never quotes the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Self

#: Characters of a dead letter's detail.
MAX_DETAIL_CHARACTERS = 200


class Reason(StrEnum):
    """Why a message cannot be decided."""

    TOMBSTONE = "tombstone"
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    MISSING_TEXT = "missing_text"
    WRONG_TYPE = "wrong_type"
    BAD_ID = "bad_id"
    BAD_TIME = "bad_time"
    BAD_RANK = "bad_rank"
    BAD_HEADER = "bad_header"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    FATAL = "fatal"


class Poison(Exception):  # noqa: N818 - named as operators say it
    """A message that cannot be decided.

    Attributes:
        reason: one of a closed list, fit for a metric label.
        detail: one sentence for people, under 200 characters, free of message text.
        lost: the parts that could not be read or written: ``value``, ``key``, ``headers``.
    """

    def __init__(self, reason: Reason, detail: str, lost: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail[:MAX_DETAIL_CHARACTERS]
        self.lost = lost

    def alone(self) -> Self:
        """Return this without the frames that it came through, to be kept.

        They hold all the batch, which would hold them: a circle that only the collector undoes.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self
