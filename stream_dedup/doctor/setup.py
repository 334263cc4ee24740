"""Checks of the settings themselves: files, secrets and packages that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_dedup.deduplicator import Stages
from stream_dedup.doctor.findings import Finding, Level, check, hint, of_error, ok
from stream_dedup.errors import SettingsError
from stream_dedup.secret_settings import secret_names
from stream_dedup.secrets import secret_of
from stream_dedup.settings import ENV_PREFIX, Settings
from stream_dedup.stream.clients import check_installed
from stream_dedup.stream.decoding import Decoder
from stream_dedup.stream.shadow_settings import shadow_settings

#: Bits of a file's mode by which everybody on the machine may read it.
_OTHERS_READ = 0o004


class SecretFile(NamedTuple):
    """The file that a secret is read from.

    Attributes:
        path: where it is.
        mode: who may read it; 0 where it is not there.
        problem: why it cannot be read, if so.
    """

    path: str
    mode: int
    problem: SettingsError | None


@dataclass(frozen=True)
class SetupFacts:
    """What the settings lead to on this machine.

    Attributes:
        client: why the Kafka client cannot be used, if so.
        files: why what the fingerprint settings name cannot be read, if so.
        secrets: by setting, those that come from a file.
        plain: names of the secrets that are given themselves.
        shadow: the settings of the shadow, if there is one, or what is wrong with them.
    """

    client: SettingsError | None = None
    files: SettingsError | None = None
    secrets: Mapping[str, SecretFile] = field(default_factory=dict)
    plain: tuple[str, ...] = ()
    shadow: Settings | SettingsError | None = None


def look(settings: Settings) -> SetupFacts:
    """Read what the settings name."""
    shadow: Settings | SettingsError | None
    try:
        shadow = shadow_settings(settings)
    except SettingsError as problem:
        shadow = problem
    names = secret_names(Settings)
    return SetupFacts(
        client=_problem(lambda: check_installed(settings)),
        files=_problem(lambda: (Decoder(settings), Stages(settings))),
        secrets={
            name: _secret_file(settings, name)
            for name in names
            if getattr(settings, f"{name}_file")
        },
        plain=tuple(name for name in names if getattr(settings, name)),
        shadow=shadow,
    )


def _secret_file(settings: Settings, name: str) -> SecretFile:
    path = getattr(settings, f"{name}_file")
    problem = _problem(lambda: secret_of(settings, name))
    mode = 0 if problem is not None else path.stat().st_mode
    return SecretFile(str(path), mode, problem)


def _problem(use: Callable[[], object]) -> SettingsError | None:
    try:
        use()
    except SettingsError as problem:
        return problem
    return None


@check(
    "settings.load",
    Level.ERROR,
    remedy="correct the setting that it names",
    failure=SettingsError,
)
def load(facts: SetupFacts, settings: Settings) -> Iterator[Finding]:
    """The settings can be read: file, environment and flags."""
    yield ok("File, environment and flags are read.")


@check(
    "settings.client",
    Level.ERROR,
    remedy="`pip install 'stream-dedup[confluent]'`",
    required=True,
    failure=SettingsError,
)
def client(facts: SetupFacts, settings: Settings) -> Iterator[Finding]:
    """The package of the transport is installed."""
    yield of_error(facts.client) if facts.client else ok(f"{settings.transport} is installed.")


@check(
    "settings.files",
    Level.ERROR,
    remedy="name files that are there, or make them with `stream-dedup learn`",
    required=True,
    failure=SettingsError,
)
def files(facts: SetupFacts, settings: Settings) -> Iterator[Finding]:
    """Files that the fingerprints need can be read (frequencies, boilerplate)."""
    yield of_error(facts.files) if facts.files else ok("All files that are named can be read.")


@check(
    "settings.secrets",
    Level.HINT,
    Level.ERROR,
    remedy="`chmod o-r`, name files that are there",
    failure=SettingsError,
)
def secrets(facts: SetupFacts, settings: Settings) -> Iterator[Finding]:
    """Files of secrets can be read, and not by everybody."""
    problems = []
    for file in facts.secrets.values():
        if file.problem is not None:
            problems.append(of_error(file.problem))
        elif file.mode & _OTHERS_READ:
            found = f"Everybody on this machine may read {file.path}."
            problems.append(hint(found, "Take that away", f"chmod o-r {file.path}"))
    told = [*(f"{name} from a file" for name in facts.secrets), *facts.plain]
    yield from problems or [ok(f"Set: {', '.join(told)}." if told else "None is set.")]


@check("settings.seed", Level.HINT, remedy="`STREAM_DEDUP_SEED`, before the index is made")
def seed(facts: SetupFacts, settings: Settings) -> Iterator[Finding]:
    """A secret seed keeps others from aiming documents at one table key."""
    if "seed" in facts.plain:
        yield ok("A seed is set.")
    else:
        yield hint(
            "No seed is set: who writes documents can aim many of them at one table key.",
            "If others write them, set a secret before the index is made; an index keeps its seed",
            f"export {ENV_PREFIX}SEED=$(openssl rand -hex 16)",
        )


@check(
    "settings.shadow",
    Level.ERROR,
    remedy="correct the shadow's file",
    required=True,
    failure=SettingsError,
)
def shadow(facts: SetupFacts, settings: Settings) -> Iterator[Finding]:
    """The shadow's file can be read and used."""
    if isinstance(facts.shadow, SettingsError):
        yield of_error(facts.shadow)
    else:
        yield ok(f"{settings.shadow} can be used." if facts.shadow else "There is no shadow.")


CHECKS = (load, client, files, secrets, seed, shadow)
