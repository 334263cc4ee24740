"""The libraries of Redis Functions that this version calls, and how they get into Redis.

A library has a number in its name, and so have its Functions. Whatever changes in one raises the
number, so versions stand side by side in one Redis and each program calls its own: none ever
replaces what another runs on (docs/adr/0020-rolling-upgrades.md).
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple, Self

from redis.exceptions import NoPermissionError

from stream_dedup.index.connection import Client, reporting_errors

_HEAD = re.compile(r"#!lua name=(\w+)\n")


class Library(NamedTuple):
    """A library of Functions.

    Attributes:
        name: begins the names of its Functions.
        code: in Lua.
    """

    name: str
    code: str

    @classmethod
    def read(cls, file: str) -> Self:
        """Read a library of this package; it says its name itself."""
        code = files("stream_dedup.index").joinpath("lua", file).read_text(encoding="utf-8")
        head = _HEAD.match(code)
        assert head is not None  # noqa: S101 - a file of this package
        return cls(head[1], code)

    def load(self, client: Client) -> bool:
        """Put the library into Redis, on every node that takes writes.

        Returns:
            whether this user may. If it may not, another has loaded it, or a call will say so.

        Raises:
            RedisError: Redis is out of reach or refuses.
        """
        try:
            client.function_load(self.code, replace=True)
        except NoPermissionError:
            return False
        return True


#: The claim protocol.
CLAIMS = Library.read("claims.lua")
#: Originals that are known to be some.
BULK = Library.read("bulk.lua")
#: The states of duplicate groups.
GROUPS = Library.read("groups.lua")

LIBRARIES = (CLAIMS, BULK, GROUPS)


def load_all(client: Client) -> list[str]:
    """Load every library; return the names of those that the user of this client may not load.

    Raises:
        ServiceError: Redis is out of reach or refuses.
    """
    with reporting_errors():
        return [library.name for library in LIBRARIES if not library.load(client)]
