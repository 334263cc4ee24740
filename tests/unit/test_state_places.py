"""A state file that moves away under its process, has two names, or is met after a fork."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import StateError
from stream_dedup.types import Document, Status

STATE = Path("originals.db")


def document(name: str) -> Document:
    return Document(name, " ".join(f"{name}{n}" for n in range(9)))


def statuses(*names: str) -> list[Status]:
    with Deduplicator(state=STATE) as deduplicator:
        return [one.status for one in deduplicator.decide([document(name) for name in names])]


@pytest.fixture(autouse=True)
def _alone(alone: None) -> None:
    statuses("a")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_gone_takes_nothing(*, replaced: bool) -> None:
    deduplicator = Deduplicator(state=STATE)
    deduplicator.decide([document("b")])
    away = STATE.rename("away.db")
    if replaced:
        STATE.write_bytes(away.read_bytes())

    for _ in range(2):
        with pytest.raises(StateError, match="was removed or replaced while it was in use"):
            deduplicator.decide([document("c")])

    away.replace(STATE)
    assert deduplicator.decide([document("c")])[0].status is Status.ORIGINAL
    deduplicator.close()
    names = [Document(f"again {name}", document(name).text) for name in "abc"]
    with Deduplicator(state=STATE) as deduplicator:
        assert {one.status for one in deduplicator.decide(names)} == {Status.EXACT_DUPLICATE}


def test_a_second_name_is_refused_but_for_a_symbolic_link() -> None:
    other = Path("other.db")
    other.hardlink_to(STATE)

    for name in (STATE, other):
        with pytest.raises(StateError, match="has another name, a hard link"):
            Deduplicator(state=name)

    other.unlink()
    other.symlink_to(STATE)
    Deduplicator(state=other).close()


def test_a_forked_process_leaves_the_file_to_the_first_one() -> None:
    deduplicator = Deduplicator(state=STATE)
    deduplicator.decide([document("b")])
    child = os.fork()
    if not child:
        code = 1
        try:
            deduplicator.decide([document("c")])
        except StateError:
            with suppress(StateError):
                deduplicator.close()
            code = 0
        finally:
            os._exit(code)

    assert os.waitpid(child, 0)[1] == 0
    assert deduplicator.decide([document("c")])[0].status is Status.ORIGINAL
    deduplicator.close()
    assert STATE.with_name("originals.db-wal").exists() is False
