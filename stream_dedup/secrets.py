"""Reading a secret where it is used: from its setting, or from the file that its setting names.

Files are read again each time, so that a secret which was replaced counts from the next connection
on.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from stream_dedup.secret_values import read_secret
from stream_dedup.settings import Settings


def secret_of(settings: Settings, name: str) -> str:
    """Return a secret; empty when none is set.

    Args:
        settings: has the secret as ``name``, or as ``name_file`` the path of a file that holds it;
            white space around it there does not belong to it.
        name: of the setting, such as ``serve_token``.

    Raises:
        SettingsError: the file cannot be read, or is empty.
    """
    value: SecretStr = getattr(settings, name)
    path: Path | None = getattr(settings, f"{name}_file")
    return value.get_secret_value() if path is None else read_secret(f"{name}_file", path)
