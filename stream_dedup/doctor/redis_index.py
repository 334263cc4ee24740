"""Checks of the index in Redis: its Functions, what it was built with, and how large it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from stream_dedup.doctor.findings import (
    Finding,
    Level,
    check,
    hint,
    known,
    of_error,
    ok,
    warning,
)
from stream_dedup.doctor.redis_facts import Node, RedisFacts
from stream_dedup.errors import ConfigurationMismatch
from stream_dedup.fingerprint.planned import planned
from stream_dedup.index.candidates import Bound
from stream_dedup.index.description import mismatch
from stream_dedup.settings import Settings

_NUMBERED = re.compile(r"(\w+?)_(\d+)")
#: Share of the originals that it was laid out for at which an index is nearly outgrown.
_NEARLY = 0.8


@check(
    "redis.functions",
    Level.HINT,
    Level.WARNING,
    remedy="`stream-dedup functions load`; `function delete` of those left over",
)
def functions(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """Each node has the Functions of this version, and none that are left over."""
    problems: list[Finding] = []
    for node in facts.nodes:
        problems += _missing(node, facts, settings)
        problems += _others(node, facts)
    names = ", ".join(sorted({name for node in facts.nodes for name in known(node.libraries)}))
    nothing = "No Functions are loaded yet; the first worker does it."
    yield from problems or [ok(f"Functions: {names}." if names else nothing)]


def _missing(node: Node, facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """Yield what stands against the library of the claim protocol."""
    name, code = facts.claims
    found = known(node.libraries).get(name)
    wanted = known(facts.index) is not None or any(name in known(n.libraries) for n in facts.nodes)
    remedy = "Load it, as a user that may, or start a worker that may"
    command = shlex.join(["stream-dedup", "functions", "load", "--redis-url", settings.redis_url])
    if found is None and wanted:
        yield warning(f"{node.name} lacks {name}, which this version calls.", remedy, command)
    elif found is not None and found != code:
        yield warning(f"{node.name} has another {name} than this version's.", remedy, command)


def _others(node: Node, facts: RedisFacts) -> Iterator[Finding]:
    """Yield the libraries of other versions."""
    ours = {match[1]: int(match[2]) for name in facts.libraries if (match := _match(name))}
    for name in sorted(known(node.libraries)):
        match = _match(name)
        if match is None or match[1] not in ours or int(match[2]) == ours[match[1]]:
            continue
        if int(match[2]) < ours[match[1]]:
            yield hint(
                f"{node.name} still has {name}, of an older version.",
                "Remove it when no worker of that version runs any more",
                f"{node.cli} function delete {name}",
            )
        else:
            yield hint(
                f"{node.name} has {name}, of a newer version than this one.",
                "Bring this machine to the version that runs elsewhere.",
            )


def _match(name: str) -> re.Match[str] | None:
    return _NUMBERED.fullmatch(name)


@check(
    "redis.index",
    Level.ERROR,
    remedy="the settings that it was built with, or `stream-dedup rebuild` under another namespace",
    failure=ConfigurationMismatch,
)
def index(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """The index was built with these settings, and is laid out as they say."""
    stands, wanted = known(facts.index), known(facts.wanted)
    if stands is None:
        yield ok(f"There is no index {settings.redis_namespace!r} yet; the first worker makes it.")
        return
    if (stands.configuration, stands.layout) == (wanted.configuration, wanted.layout):
        yield ok(
            f"The index {settings.redis_namespace!r} has configuration {wanted.configuration}."
        )
        return
    found = of_error(ConfigurationMismatch(mismatch(settings.redis_namespace, stands, wanted)))
    command = f"stream-dedup rebuild --redis-namespace {settings.redis_namespace}-new"
    yield found._replace(
        remedy=found.remedy.removesuffix(": stream-dedup rebuild."), command=command
    )


@check("redis.originals", Level.HINT, Level.WARNING, remedy="`stream-dedup plan` and `rebuild`")
def originals(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """The index holds fewer originals than it was laid out for."""
    count, expected = known(facts.originals), settings.expected_originals
    if count <= _NEARLY * expected:
        yield ok(f"{count:,} originals of the {expected:,} that it is laid out for.")
        return
    say = warning if count > expected else hint
    yield say(
        f"The index holds {count:,} originals and is laid out for {expected:,}: beyond, probes "
        "return more candidates and entries take more memory.",
        "Plan a larger one, and build it beside this (stream-dedup rebuild)",
        f"stream-dedup plan --documents {10 * max(count, expected)}",
    )


@check("redis.keys", Level.WARNING, remedy="`--clean boilerplate`, `max_candidates`")
def keys(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """Sorted sets are about as long as planned; one in a sample that is not is a template's."""
    lengths = [length for node in facts.nodes for length in known(node.lengths)]
    if not lengths:
        yield ok("There are no table keys yet.")
        return
    longest, mean = max(lengths), sum(lengths) / len(lengths)
    found = f"the fullest has {longest:,} entries, the mean {mean:.1f} (of {len(lengths)} sampled)"
    bound = Bound(settings.max_candidates, len(planned(settings).design.prefix_bits))
    if longest > bound.share:
        yield warning(
            f"Of the sorted sets {found}: probes may be cut at {bound.share} (max_candidates, "
            f"{bound.most}, in {bound.tables} tables), and miss copies.",
            "Take out what templates have in common (stream-dedup learn boilerplate), or read on",
            f"max_candidates = {min(1_000_000, bound.tables * longest)}",
        )
    else:
        yield ok(f"Of the sorted sets {found}.")


CHECKS = (functions, index, originals, keys)
