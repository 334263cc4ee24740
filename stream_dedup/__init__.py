"""Near-duplicate detection for document streams."""

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import (
    ConfigurationMismatch,
    InputError,
    ServiceError,
    SettingsError,
    StateError,
    StreamDedupError,
)
from stream_dedup.settings import Settings
from stream_dedup.types import (
    Choice,
    Decision,
    Document,
    DocumentId,
    Measure,
    Method,
    Side,
    Status,
    VerifyBy,
)

__all__ = [
    "Choice",
    "ConfigurationMismatch",
    "Decision",
    "Deduplicator",
    "Document",
    "DocumentId",
    "InputError",
    "Measure",
    "Method",
    "ServiceError",
    "Settings",
    "SettingsError",
    "Side",
    "StateError",
    "Status",
    "StreamDedupError",
    "VerifyBy",
]
__version__ = "0.1.0"
