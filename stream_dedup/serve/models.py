"""What is sent to the service, and what comes back."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)
from pydantic.config import JsonDict

from stream_dedup.groups import DUPLICATE_ID
from stream_dedup.query import Answer, Question
from stream_dedup.types import Document, DocumentId, Status

_EXAMPLE: JsonDict = {"text": "The ferry leaves at nine in the morning, and at noon if it is full."}


def _whole(text: str) -> str:
    """Refuse a lone surrogate, which no answer could repeat, as messages with one are."""
    try:
        text.encode()
    except UnicodeEncodeError:
        msg = "a lone surrogate is not text"
        raise ValueError(msg) from None
    return text


_Text = Annotated[StrictStr, AfterValidator(_whole)]

#: Fields of an object that are looked at one by one. Each that is wrong makes an error, which costs
#: a hundred times its bytes, while nothing else is answered.
_MOST_FIELDS = 20


class _Bounded(BaseModel):
    """An object that does not take long to refuse."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > _MOST_FIELDS:
            msg = f"it has {len(given)} fields"
            raise ValueError(msg)
        return given


class QueryDocument(_Bounded):
    """A document that is asked about."""

    text: _Text = Field(description="The text.", examples=["Is this known?"])
    id: _Text | StrictInt | None = Field(
        None, description="What the answer is to be known by; it does not matter otherwise."
    )
    time: AwareDatetime | None = Field(
        None,
        description="Its event time, RFC 3339 or seconds since the epoch. It matters only where a "
        "window is set; without it the text is asked about as of now.",
    )
    origin: _Text = Field(
        "", description="What it comes from; it matters only to boilerplate that is cleaned away."
    )

    def question(self, *, explain: bool) -> Question:
        """Return what is asked of the index."""
        time = None if self.time is None else self.time.timestamp()
        return Question(Document("", self.text, time, origin=self.origin), self.id, explain)


class QueryOne(QueryDocument):
    """A question about one document."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    explain: bool = Field(
        default=False,
        description="Whether to say why, and to list the originals that come nearest.",
    )


class QueryBatch(_Bounded):
    """A question about several documents, which are not compared with each other."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"documents": [{"id": "a", **_EXAMPLE}, {"id": 7, "text": "Another."}]}]
        },
    )

    documents: Annotated[list[QueryDocument], FailFast()] = Field(description="The documents.")
    explain: bool = Field(default=False, description="Whether to say why, of each.")


class Answers(BaseModel, frozen=True):
    """What the index knows of several documents."""

    answers: list[Answer] = Field(description="An answer for each document, in their order.")


class GroupMember(BaseModel, frozen=True):
    """A document as a group lists it."""

    id: DocumentId = Field(description="Its id.")
    status: Status = Field(description="What it turned out to be.")
    time: float | None = Field(None, description="Event time, seconds since the epoch.")
    origin: str = Field("", description="What it comes from.")
    similarity: float | None = Field(None, description="The measure that decided, from 0 to 1.")
    hamming_distance: int | None = Field(None, description="Differing fingerprint bits.")


class GroupSource(BaseModel, frozen=True):
    """An origin, and how many members come from it."""

    origin: str = Field(description="The origin.")
    count: int = Field(description="Members that come from it, at most.")
    over: int = Field(0, description="By how much `count` may be too high.")


class GroupState(BaseModel, frozen=True):
    """A duplicate group, as it is published on the groups topic; what is empty is left out."""

    duplicate_id: str = Field(description="Its name.", pattern=f"^{DUPLICATE_ID.pattern}$")
    original_id: DocumentId = Field(description="Id of the document that it began with.")
    size: int = Field(description="Documents in it, the original included.")
    exact_duplicates: int = Field(description="Of these, exact duplicates.")
    near_duplicates: int = Field(description="Of these, near duplicates.")
    revision: int = Field(description="Members that were folded into this state.")
    first_seen: float | None = Field(
        None, description="Earliest event time of the members told of, seconds since the epoch."
    )
    last_seen: float | None = Field(None, description="Latest event time of the same.")
    sources: list[GroupSource] = Field([], description="Most frequent origins, these first.")
    other_sources: int = Field(
        0, description="Members from an origin that are in no count of `sources` for certain."
    )
    first_members: list[GroupMember] = Field([], description="Members from the first on.")
    latest_members: list[GroupMember] = Field(
        [], description="Members after these, up to the latest, the oldest left out."
    )
    applied: dict[str, int] = Field(
        {}, description="Offset of the last member folded, by partition of the members topic."
    )


#: The kinds of body: one document, or several.
KINDS = ("one", "batch")


def _kind(body: Any) -> str:
    is_batch = "documents" in body if isinstance(body, dict) else isinstance(body, QueryBatch)
    return KINDS[is_batch]


#: The body of a query: one document, or an object with several.
QueryBody = Annotated[
    Annotated[QueryOne, Tag(KINDS[0])] | Annotated[QueryBatch, Tag(KINDS[1])], Discriminator(_kind)
]
