"""The review page: each setting of it once."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, SecretStr

from stream_dedup.setting_types import setting


class ReviewSettings(BaseModel):
    """Where the page is served, and what it keeps; see docs/review.md."""

    review_host: str = setting("127.0.0.1", "review", "Address that the page is served on.")
    review_port: int = setting(
        9466, "review", "Port of the same; 0 takes a free one.", ge=0, le=65535
    )
    review_names: str = setting(
        "",
        "review",
        "Host names by which browsers reach the page, comma-separated, beside localhost and "
        "addresses; others are refused.",
    )
    review_token: SecretStr = setting(
        SecretStr(""),
        "review",
        "Token to log in with; needed on any address that others can reach.",
    )
    review_token_file: Path | None = setting(
        None, "review", "File that holds that token, instead of review_token."
    )
    review_window: int = setting(
        1_000_000,
        "review",
        "Documents that the page shows, at most; the oldest go first.",
        ge=100,
        le=100_000_000,
    )
    review_source_field: str = setting(
        "source", "review", "JSON field that holds what a document comes from, to be shown."
    )
    review_link_field: str = setting(
        "url", "review", "JSON field that holds a document's address (http or https), to be linked."
    )
    review_file: Path | None = setting(
        None,
        "review",
        "SQLite file of the documents that are shown; without it a temporary one, gone at the end.",
    )
    review_labels: Path = setting(
        Path("labels.db"), "review", "SQLite file of the labels that people give."
    )
