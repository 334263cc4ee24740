"""Files of learned things, with a hash at their end that tells whether they are whole.

A file of an earlier version has none. Its MessagePack ends where the file does, so a damaged end is
not taken for one without.
"""

from __future__ import annotations

import xxhash

_MARK = b"xxh3"
_BYTES = len(_MARK) + 8


def seal(content: bytes) -> bytes:
    """Return the content of a file with its hash behind it."""
    return content + _MARK + xxhash.xxh3_64_digest(content)


def unseal(content: bytes) -> bytes:
    """Return what was sealed; the same if nothing was.

    Raises:
        ValueError: it is not what was sealed.
    """
    if content[-_BYTES:-8] != _MARK:
        return content
    whole, digest = content[:-_BYTES], content[-8:]
    if xxhash.xxh3_64_digest(whole) != digest:
        msg = "it is damaged"
        raise ValueError(msg)
    return whole
