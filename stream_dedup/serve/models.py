"""What is sent to the service, and what comes back."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    StrictStr,
    Tag,
)
from pydantic.config import JsonDict

from stream_dedup.query import Answer, Question
from stream_dedup.types import Document

_EXAMPLE: JsonDict = {"text": "The ferry leaves at nine in the morning, and at noon if it is full."}


class QueryDocument(BaseModel):
    """A document that is asked about."""

    model_config = ConfigDict(extra="forbid")

    text: StrictStr = Field(description="The text.", examples=["Is this known?"])
    id: StrictStr | StrictInt | None = Field(
        None, description="What the answer is to be known by; it does not matter otherwise."
    )
    time: AwareDatetime | None = Field(
        None,
        description="Its event time, RFC 3339 or seconds since the epoch. It matters only where a "
        "window is set; without it the text is asked about as of now.",
    )
    origin: StrictStr = Field(
        "", description="What it comes from; it matters only to boilerplate that is cleaned away."
    )

    def question(self, *, explain: bool) -> Question:
        """Return what is asked of the index."""
        time = None if self.time is None else self.time.timestamp()
        return Question(Document("", self.text, time, origin=self.origin), self.id, explain)


class QueryOne(QueryDocument):
    """A question about one document."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    explain: bool = Field(
        default=False,
        description="Whether to say why, and to list the originals that come nearest.",
    )


class QueryBatch(BaseModel):
    """A question about several documents, which are not compared with each other."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"documents": [{"id": "a", **_EXAMPLE}, {"id": 7, "text": "Another."}]}]
        },
    )

    documents: list[QueryDocument] = Field(description="The documents.")
    explain: bool = Field(default=False, description="Whether to say why, of each.")


class Answers(BaseModel, frozen=True):
    """What the index knows of several documents."""

    answers: list[Answer] = Field(description="An answer for each document, in their order.")


#: The kinds of body: one document, or several.
KINDS = ("one", "batch")


def _kind(body: Any) -> str:
    is_batch = "documents" in body if isinstance(body, dict) else isinstance(body, QueryBatch)
    return KINDS[is_batch]


#: The body of a query: one document, or an object with several.
QueryBody = Annotated[
    Annotated[QueryOne, Tag(KINDS[0])] | Annotated[QueryBatch, Tag(KINDS[1])], Discriminator(_kind)
]
