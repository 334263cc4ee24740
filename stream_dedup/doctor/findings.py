"""What a check says, and what a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from stream_dedup.errors import ServiceError, StreamDedupError
from stream_dedup.settings import Settings

Fact = TypeVar("Fact")


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    HINT = "hint"
    WARNING = "warning"
    ERROR = "error"
    NOT_CHECKED = "not checked"
    MAY_NOT_LOOK = "may not look"


class Finding(NamedTuple):
    """What one check says of one thing.

    Attributes:
        level: how bad it is.
        found: what was found, a sentence.
        remedy: what to do, a sentence; one that leads to ``command`` has no full stop.
        command: what to enter or to set, to be copied; empty where there is no such thing.
        check: name of the check.
    """

    level: Level
    found: str
    remedy: str = ""
    command: str = ""
    check: str = ""

    @property
    def advice(self) -> str:
        """The remedy with its command."""
        return f"{self.remedy}: {self.command}" if self.command else self.remedy

    @property
    def sentence(self) -> str:
        """All of it, as an error message."""
        return f"{self.found} {self.advice}".strip()


def ok(found: str) -> Finding:
    """Say that all is well."""
    return Finding(Level.OK, found)


def hint(found: str, remedy: str, command: str = "") -> Finding:
    """Say what could be better, and need not."""
    return Finding(Level.HINT, found, remedy, command)


def warning(found: str, remedy: str, command: str = "") -> Finding:
    """Say what works now and will hurt."""
    return Finding(Level.WARNING, found, remedy, command)


def error(found: str, remedy: str, command: str = "") -> Finding:
    """Say what keeps a worker from working rightly."""
    return Finding(Level.ERROR, found, remedy, command)


def of_error(problem: StreamDedupError) -> Finding:
    """Make an error a finding: its first sentence says what is wrong, the others what to do."""
    found, full_stop, remedy = str(problem).partition(". ")
    return error(found + full_stop.strip(), remedy)


class Unknown(NamedTuple):
    """Stands for a fact that could not be had.

    Attributes:
        level: ``NOT_CHECKED`` or ``MAY_NOT_LOOK``.
        why: what stood in the way, a sentence.
        remedy: the permission that it takes.
    """

    level: Level
    why: str
    remedy: str = ""


def may_not_look(what: str, permission: str) -> Unknown:
    """Stand for what this user is not shown."""
    return Unknown(
        Level.MAY_NOT_LOOK, f"This user is not shown {what}.", f"Grant it {permission}, to check"
    )


def not_checked(why: str) -> Unknown:
    """Stand for what could not be asked."""
    return Unknown(Level.NOT_CHECKED, why)


class UnknownFactError(Exception):
    """A check needs a fact that could not be had.

    Attributes:
        unknown: what stands for it.
    """

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.why)
        self.unknown = unknown


def known(fact: Fact | Unknown) -> Fact:
    """Return a fact.

    Raises:
        UnknownFactError: it could not be had; ends the check.
    """
    if isinstance(fact, Unknown):
        raise UnknownFactError(fact)
    return fact


Judge = Callable[[Any, Settings], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: subject and thing, such as ``kafka.retention``.
        levels: how it may come out, besides well.
        remedy: what helps, in short, for the documentation.
        judge: makes findings of facts and settings; its docstring says what is checked.
        required: whether a worker does not start when it comes out as an error.
        failure: the error with which it does not.
    """

    name: str
    levels: tuple[Level, ...]
    remedy: str
    judge: Judge
    required: bool
    failure: type[StreamDedupError]

    @property
    def about(self) -> str:
        """What is checked."""
        return (self.judge.__doc__ or "").partition("\n")[0]

    def findings(self, facts: Any, settings: Settings) -> Iterator[Finding]:
        """Yield what is found, one finding at least.

        Args:
            facts: of its subject, or what stands for all of them.
            settings: what they are held to.
        """
        try:
            for finding in self.judge(known(facts), settings):
                yield finding._replace(check=self.name)
        except UnknownFactError as found:
            unknown = found.unknown
            yield Finding(unknown.level, unknown.why, unknown.remedy, check=self.name)


def check(
    name: str,
    *levels: Level,
    remedy: str,
    required: bool = False,
    failure: type[StreamDedupError] = ServiceError,
) -> Callable[[Judge], Check]:
    """Make a check of a judging function; see ``Check``."""

    def made(judge: Judge) -> Check:
        return Check(name, levels, remedy, judge, required, failure)

    return made


def judged(checks: Sequence[Check], facts: Any, settings: Settings) -> list[Finding]:
    """Return what these checks find."""
    return [finding for one in checks for finding in one.findings(facts, settings)]


def demand(checks: Sequence[Check], facts: Any, settings: Settings) -> None:
    """Carry out the required ones among some checks.

    Raises:
        StreamDedupError: of the class that the first failed check names; it tells of all errors of
            that check.
    """
    for one in checks:
        if not one.required:
            continue
        errors = [
            found.sentence for found in one.findings(facts, settings) if found.level is Level.ERROR
        ]
        if errors:
            raise one.failure("\n".join(errors))


def exit_code(findings: Sequence[Finding], checks: Sequence[Check], *, strict: bool) -> int:
    """Return the exit code: that of the first error's class, as a worker would end with it.

    Args:
        findings: of a whole examination.
        checks: all checks.
        strict: whether warnings count too.
    """
    failures = {one.name: one.failure for one in checks}
    for level in (Level.ERROR, Level.WARNING) if strict else (Level.ERROR,):
        for found in findings:
            if found.level is level:
                return failures[found.check].exit_code
    return 0
