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
from stream_dedup.types import Decision, Document, DocumentId, Method, Status

__all__ = [
    "ConfigurationMismatch",
    "Decision",
    "Deduplicator",
    "Document",
    "DocumentId",
    "InputError",
    "Method",
    "ServiceError",
    "Settings",
    "SettingsError",
    "StateError",
    "Status",
    "StreamDedupError",
]
__version__ = "0.1.0"
