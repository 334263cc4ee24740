"""Checks of the Redis servers: are they as an index needs them?"""

from __future__ import annotations

from collections.abc import Iterator

from stream_dedup.doctor.findings import (
    Finding,
    Level,
    Unknown,
    check,
    error,
    hint,
    known,
    ok,
    warning,
)
from stream_dedup.doctor.redis_facts import Node, RedisFacts
from stream_dedup.doctor.words import readable_bytes as size
from stream_dedup.settings import Settings
from stream_dedup.tables.plan import FILL

#: Oldest Redis that has Functions.
OLDEST_REDIS = 7
_SLOTS = "16384"
#: So full, a node has hours rather than weeks.
_NEARLY_FULL = 0.95
#: Median seconds of a call: a batch makes some dozen of them one after the other.
_SLOW, _VERY_SLOW = 0.005, 0.02
#: Share of the connections that a server takes.
_CROWDED = 0.8
#: Share of a machine's memory that a server may have, if nothing else is known.
_OF_MACHINE = 0.75


@check(
    "redis.reachable",
    Level.ERROR,
    remedy="start Redis, `--redis-url`, user and password",
    required=True,
)
def reachable(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """Redis answers."""
    kind = "One node" if facts.cluster is None else f"A Cluster of {len(facts.nodes)} primaries"
    yield ok(f"{kind} at {facts.where}.")


@check("redis.version", Level.ERROR, remedy="Redis 7 or later, or Valkey", required=True)
def version(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """Redis has Functions: it is 7 or later, or Valkey."""
    versions = {str(node.said("redis_version")) for node in facts.nodes}
    old = [one for one in versions if int(one.split(".", maxsplit=1)[0]) < OLDEST_REDIS]
    if old:
        yield error(
            f"Redis at {facts.where} is of version {old[0]}.", "Use Redis 7 or later, or Valkey."
        )
    else:
        yield ok(f"Version {', '.join(sorted(versions))}.")


@check(
    "redis.policy",
    Level.ERROR,
    remedy="`config set maxmemory-policy noeviction`",
    required=True,
)
def policy(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """No node evicts keys, which would forget originals."""
    problems = []
    for node in facts.nodes:
        found = node.said("maxmemory_policy")
        if found != "noeviction":
            problems.append(
                error(
                    f"Redis at {node.name} has the eviction policy {found}, which would forget "
                    "originals.",
                    "Set it to keep all",
                    f"{node.cli} config set maxmemory-policy noeviction",
                )
            )
    yield from problems or [ok("Nothing is evicted (noeviction).")]


@check("redis.cluster", Level.ERROR, remedy="`redis-cli --cluster fix`")
def cluster(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """A Cluster serves all slots."""
    if facts.cluster is None:
        yield ok("One node, no Cluster.")
        return
    found = known(facts.cluster)
    served = found.get("cluster_slots_ok", "0")
    if found.get("cluster_state") != "ok" or served != _SLOTS:
        yield error(
            f"The Cluster's state is {found.get('cluster_state')}, and {served} of {_SLOTS} slots "
            "are served: what belongs to the others stands still.",
            "Bring back the nodes that are away, or give their slots to others",
            f"redis-cli --cluster fix {facts.nodes[0].name}",
        )
        return
    config = facts.nodes[0].config
    whole = "" if isinstance(config, Unknown) else config.get("cluster-require-full-coverage", "")
    yield ok(f"All {_SLOTS} slots are served (cluster-require-full-coverage {whole or 'unknown'}).")


@check(
    "redis.replicas",
    Level.WARNING,
    Level.ERROR,
    remedy="more replicas, or a smaller `wait_replicas`",
)
def replicas(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """Each node has the replicas that `wait_replicas` waits for, and one to spare."""
    wanted = settings.wait_replicas
    online = {node.name: int(node.said("connected_slaves")) for node in facts.nodes}
    name, least = min(online.items(), key=lambda one: one[1])
    if least < wanted:
        yield error(
            f"wait_replicas is {wanted}, and {name} has {least} replica(s): nothing is decided.",
            "Add replicas, or wait for those that are there",
            f"wait_replicas = {least}",
        )
    elif wanted and least == wanted:
        yield warning(
            f"{name} has just the {least} replica(s) that wait_replicas waits for: when one is "
            "away, the stream stands still.",
            "Give each node one more, with redis-cli of the new one",
            _replicate(facts, name),
        )
    elif facts.cluster is not None and not least:
        yield warning(
            f"{name} has no replica: with it a part of the index is lost, and all stands still.",
            "Give each primary one, with redis-cli of the new one",
            _replicate(facts, name),
        )
    else:
        yield ok(f"{least} replica(s) for each node; wait_replicas is {wanted}.")


def _replicate(facts: RedisFacts, name: str) -> str:
    host, _, port = name.rpartition(":")
    if facts.cluster is None:
        return f"replicaof {host} {port}"
    return f"redis-cli --cluster add-node NEW_HOST:NEW_PORT {name} --cluster-slave"


@check("redis.memory", Level.WARNING, Level.ERROR, remedy="`config set maxmemory`, more shards")
def memory(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """Each node has a memory limit, and is not near it."""
    problems = [found for node in facts.nodes if (found := _memory(node))]
    if problems:
        yield from problems
        return
    fullest = max(node.used / node.limit for node in facts.nodes)
    used = sum(node.used for node in facts.nodes)
    limit = sum(node.limit for node in facts.nodes)
    yield ok(f"{size(used)} of {size(limit)} used; the fullest node is {fullest:.0%} full.")


def _memory(node: Node) -> Finding | None:
    if not node.limit:
        return warning(
            f"{node.name} has no maxmemory ({size(node.used)} used): the machine's end is its "
            "limit, where it is killed instead of refusing writes.",
            "Set a limit",
            f"{node.cli} config set maxmemory {_limit_of(node)}",
        )
    share = node.used / node.limit
    if share < FILL:
        return None
    say = error if share >= _NEARLY_FULL else warning
    return say(
        f"{node.name} is {share:.0%} full, {size(node.used)} of {size(node.limit)}: when it is "
        "full, the stream stands still.",
        "Add shards, let originals expire (window), or raise the limit",
        f"{node.cli} config set maxmemory {round(node.used / FILL * 1.5)}",
    )


def _limit_of(node: Node) -> int:
    """Return the limit to propose: most of the machine's memory."""
    return max(round(int(node.said("total_system_memory")) * _OF_MACHINE), 2 * node.used)


@check(
    "redis.persistence",
    Level.HINT,
    Level.WARNING,
    Level.ERROR,
    remedy="`config set appendonly yes`; room on the disk",
)
def persistence(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """What is written is on disk too, and the latest writing went well."""
    problems = [found for node in facts.nodes if (found := _persistence(node))]
    fsync = {one.get("appendfsync", "") for node in facts.nodes if (one := _config(node))}
    how = f" (appendfsync {', '.join(sorted(fsync))})" if fsync else ""
    yield from problems or [ok(f"Writes go to an append-only file{how}.")]


def _persistence(node: Node) -> Finding | None:
    states = ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
    failed = [name for name in states if node.said(name) != "ok"]
    if failed:
        return error(
            f"{node.name} could not write to its disk ({', '.join(failed)}): it refuses writes, or "
            "loses them when it ends.",
            "Make room on its disk, correct its permissions, and have it try again",
            f"{node.cli} bgsave",
        )
    append = f"{node.cli} config set appendonly yes"
    config = _config(node)
    if int(node.said("aof_enabled")):
        if config.get("appendfsync") == "no":
            return hint(
                f"{node.name} leaves it to its system when appended writes reach the disk.",
                "Have that done each second",
                f"{node.cli} config set appendfsync everysec",
            )
        return None
    if config.get("save"):
        return hint(
            f"{node.name} saves at intervals ({config['save']}): what came since is lost when it "
            "ends, and its later copies become originals once more.",
            "Have it append each write, and write that into its configuration file",
            append,
        )
    return warning(
        f"{node.name} keeps everything in memory alone: when it ends, the index is gone.",
        "Have it append each write, and write that into its configuration file",
        append,
    )


def _config(node: Node) -> dict[str, str]:
    return {} if isinstance(node.config, Unknown) else dict(node.config)


@check("redis.latency", Level.HINT, Level.WARNING, remedy="workers nearer to Redis")
def latency(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """A call is answered in 5 ms (median of 20 PINGs)."""
    slowest = max(known(node.latency) for node in facts.nodes)
    found = f"A call takes {slowest * 1e3:.3g} ms (median of 20, the slowest node)"
    if slowest > _SLOW:
        say = warning if slowest > _VERY_SLOW else hint
        yield say(
            f"{found}; a batch makes some dozen of them one after the other.",
            "Run the workers in the same place as Redis; larger batches need fewer calls",
            f"batch_documents = {min(20_000, 4 * settings.batch_documents)}",
        )
    else:
        yield ok(f"{found}.")


@check("redis.clients", Level.WARNING, remedy="`config set maxclients`")
def clients(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """No node is near the number of connections that it takes."""
    problems, most = [], 0.0
    for node in facts.nodes:
        count, limit = int(node.said("connected_clients")), int(node.said("maxclients"))
        most = max(most, count / limit)
        if count > _CROWDED * limit:
            problems.append(
                warning(
                    f"{node.name} has {count} of the {limit} connections that it takes.",
                    "Let it take more",
                    f"{node.cli} config set maxclients {2 * limit}",
                )
            )
    yield from problems or [ok(f"{most:.0%} of the connections are in use, at most.")]


@check("redis.permissions", Level.ERROR, remedy="`acl setuser`, see docs/redis.md")
def permissions(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """This user may do what a worker does."""
    denied = known(facts.denied)
    if denied:
        rights = " ".join(f"+{name}" for name in denied)
        yield error(
            f"This user may not {', '.join(denied)}, or not with the index's keys.",
            "Allow it, in the place of NAME, on every node",
            f"{facts.nodes[0].cli} acl setuser NAME {rights} '~{settings.redis_namespace}:*'",
        )
    else:
        yield ok("This user may do what a worker does.")


CHECKS = (
    reachable,
    version,
    policy,
    cluster,
    replicas,
    memory,
    persistence,
    latency,
    clients,
    permissions,
)
