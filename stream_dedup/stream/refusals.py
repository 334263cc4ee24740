"""Records whose answers the broker refuses, until what becomes of them is published. Pure."""

from __future__ import annotations

from stream_dedup.errors import ServiceError
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.transport import EVERYTHING, Position, PublishError, Record

#: What is published of a refused record: a dead letter, cut if it is large, then one without its
#: key, value and headers. A topic that refuses that, too, takes no dead letter at all.
_FORMS = 2


class Refusals:
    """What was refused.

    Args:
        topic: where dead letters go.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._refused: dict[Position, tuple[int, str]] = {}

    def note(self, error: PublishError) -> None:
        """Take note of what was not published, if the error names it.

        Raises:
            ServiceError: not even the least dead letter is taken.
        """
        for position, said in (error.refused or {}).items():
            times, _ = self._refused.get(position, (0, ""))
            if times == _FORMS:
                msg = (
                    f"The topic {self._topic} refuses even a dead letter of less than 1 KB: "
                    f"{said}. Correct its settings."
                )
                raise ServiceError(msg) from error
            self._refused[position] = (times + 1, said)

    def check(self, record: Record) -> None:
        """See whether a record is to become a dead letter.

        Raises:
            Poison: it is.
        """
        if not self._refused:
            return
        found = self._refused.get((record.topic, record.partition, record.offset))
        if found is not None:
            times, said = found
            lost = EVERYTHING if times == _FORMS else ()
            raise Poison(Reason.REFUSED, f"The broker refuses the annotated message: {said}", lost)

    def clear(self) -> None:
        """Forget them: what was polled is published."""
        self._refused.clear()
