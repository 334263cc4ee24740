"""Every error that this library raises on purpose.

    StreamDedupError
    ├── SettingsError          a setting is missing, out of range or contradicts another
    ├── InputError             a document cannot be read (the message names its position)
    ├── StateError             a state file cannot be used
    ├── ConfigurationMismatch  an index was built with another fingerprint configuration
    ├── ServiceError           Kafka or Redis is unreachable or not set up as needed
    │   └── RefusedCallError   it works, and answers this very call with an error
    └── WorkerError            a process of ``run --jobs`` has ended

Each message is one sentence on what is wrong and one on what to do next. ``exit_code`` is the
process exit code that the command line gives for it.
"""

from __future__ import annotations


class StreamDedupError(Exception):
    """Base of every error raised on purpose."""

    exit_code = 1


class SettingsError(StreamDedupError):
    """A setting is missing, out of range or contradicts another."""

    exit_code = 2


class InputError(StreamDedupError):
    """A document cannot be read."""

    exit_code = 65


class StateError(StreamDedupError):
    """A state file cannot be opened, is locked, or is not a state file."""

    exit_code = 73


class ConfigurationMismatch(StreamDedupError):  # noqa: N818 - a state of things, named as users say it
    """An index was built with another fingerprint configuration."""

    exit_code = 78


class ServiceError(StreamDedupError):
    """Kafka or Redis is unreachable or not set up as needed."""

    exit_code = 69


class RefusedCallError(ServiceError):
    """A service works, and does not carry out this very call; another one may do well."""


class WorkerError(StreamDedupError):
    """A process that carries out a part of a run has ended."""

    exit_code = 70
