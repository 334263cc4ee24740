"""What goes wrong with services; always a failure of the test, never a reason to skip it."""

from __future__ import annotations


class ServiceError(RuntimeError):
    """A service is not installed, does not start or cannot do what is asked of it."""
