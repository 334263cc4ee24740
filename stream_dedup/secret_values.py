"""Secret values: read from their files, and masked in all text that leaves the program.

Secrets are kept in types that do not print them. What is here is the last line of defence: every
value that the settings of this process have had is remembered, and replaced where lines are logged
and errors printed.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from stream_dedup.errors import SettingsError

#: What is printed in place of a secret, as pydantic does.
MASK = "**********"

#: A shorter value is not replaced: it may be a part of any word.
_SHORTEST = 6

_forms: tuple[str, ...] = ()
_lock = threading.Lock()


def read_secret(name: str, path: Path) -> str:
    """Read a secret from its file; white space around it does not belong to it.

    Args:
        name: of the setting that names the file.
        path: the file.

    Raises:
        SettingsError: the file cannot be read, or is empty.
    """
    try:
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        # The path is left out, as it may be the secret itself, given to the wrong setting; and the
        # error, as one of decoding has the content of the file.
        msg = f"{name} cannot be read: {reason}. Name a file with the secret in it."
        raise SettingsError(msg) from None
    if not secret:
        msg = f"{name} is empty. Write the secret into it."
        raise SettingsError(msg)
    remember(secret)
    return secret


def remember(secret: str) -> None:
    """Have ``mask`` replace a value from now on, also as JSON, an address or ``repr`` writes it."""
    global _forms  # noqa: PLW0603 - of a process, as its log is
    if len(secret) < _SHORTEST:
        return
    escaped = json.dumps(secret)[1:-1]
    unescaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    forms = {secret, escaped, unescaped, repr(secret)[1:-1], quote(secret), quote(secret, safe="")}
    with _lock:
        # The longest first: one secret may be a part of another.
        _forms = tuple(sorted(forms.union(_forms), key=len, reverse=True))


def mask(text: str) -> str:
    """Replace every remembered value in a text."""
    for form in _forms:
        text = text.replace(form, MASK)
    return text


class MaskingFormatter(logging.Formatter):
    """Formats as another does, and masks the whole line, with its traceback."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return mask(self._inner.format(record))


def mask_tracebacks() -> None:
    """Mask the tracebacks that Python prints when a program or a thread ends of an error."""
    sys.excepthook = _print_masked
    threading.excepthook = lambda args: (
        _print_masked(args.exc_type, args.exc_value, args.exc_traceback)
        if args.exc_type is not SystemExit
        else None
    )


def _print_masked(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    sys.stderr.write(mask("".join(traceback.format_exception(kind, error, trace))))
