"""Functions that were released never change under their names: versions run side by side."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from stream_dedup.index.functions import LIBRARIES, Library

#: Digest of each library that there has been, by its name.
KNOWN = json.loads((Path(__file__).parent / "functions.json").read_text(encoding="utf-8"))
ADVICE = (
    "{0} differs from what {0} was. Raise the number in its name and in those of its Functions, "
    "and add the digest {1} under the new name to tests/contract/functions.json. (Only if no "
    "release has had {0}, put the digest in the place of the old one.)"
)


def digest(library: Library) -> str:
    """Digest the code; lines of nothing but comments may change."""
    lines = (line.rstrip() for line in library.code.splitlines())
    code = "\n".join(line for line in lines if not line.lstrip().startswith("--") and line)
    return hashlib.sha256(code.encode()).hexdigest()


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_a_library_is_what_it_was_under_its_name(library: Library) -> None:
    found = digest(library)

    assert KNOWN.get(library.name) == found, ADVICE.format(library.name, found)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_every_function_has_the_number_of_its_library(library: Library) -> None:
    names = re.findall(r"(?:register_function\(|function_name = )'(\w+)'", library.code)

    assert re.search(r"_\d+$", library.name)
    assert len(names) == library.code.count("redis.register_function(")
    assert all(name.startswith(f"{library.name}_") for name in names)


def test_a_comment_may_change_and_code_may_not() -> None:
    library = LIBRARIES[0]
    commented = library._replace(code=library.code.replace("\n-- ", "\n-- Note: "))
    changed = library._replace(code=library.code.replace("'HSETNX'", "'HSET'"))

    assert digest(commented) == digest(library) != digest(changed)
