"""The users of ops/redis/users.acl can do their work, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dedup.cli.main import cli
from stream_dedup.settings import ENV_PREFIX
from tests.services.certificates import Certificates
from tests.services.secure import PASSWORD, USERS, SecureRedis

DOCS = Path(__file__).parents[2] / "docs"
#: Each user's rules.
RULES = {line.split()[1]: set(line.split()[2:]) for line in USERS.read_text().splitlines()}
#: What every user needs, to log in and to find the nodes of a Cluster.
COMMON = {"on", "resetchannels", "-@all", "+hello", "+ping", "+command"}
COMMON |= {"+cluster|slots", "+cluster|shards"}
KEYS = "~sd*:*"

#: What nobody but the administrator may do.
NEVER = [
    "FLUSHDB",
    "FLUSHALL",
    "KEYS *",
    "CONFIG GET *",
    "ACL LIST",
    "SHUTDOWN",
    "DEBUG SLEEP 0",
    "EVAL 1 0",
    "FUNCTION FLUSH",
    "FUNCTION DELETE stream_dedup_2",
    "DEL sd:index",
    "EXPIRE sd:index 1",
    "RENAME sd:index sd:other",
    "MIGRATE 127.0.0.1 1 sd:index 0 1",
    "REPLICAOF 127.0.0.1 1",
    "MONITOR",
    "SUBSCRIBE news",
    "PUBLISH news 1",
    "GET other:index",
    "SET other:index 1",
    "FCALL stream_dedup_2_advance 1 other:index",
]
MAY = {
    "worker": ["GET sd:x", "SET sd2:x 1", "FCALL stream_dedup_2_advance 1 sd:index", "INFO"],
    "reader": ["GET sd:x", "FCALL_RO stream_dedup_2_look 1 sd:x", "ZCOUNT sd:x 0 1"],
    "operator": ["GET sd:x", "SCAN 0", "HSCAN sd:x 0", "ZSCAN sd:x 0"],
    "deployer": ["FUNCTION LOAD x"],
}
MAY_NOT = {
    "worker": ["FUNCTION LOAD x", "SCAN 0", "HSCAN sd:x 0"],
    "reader": ["SET sd:x 1", "FCALL stream_dedup_2_advance 1 sd:index", "ZADD sd:x 0 a", "SCAN 0"],
    "operator": ["FUNCTION LOAD x"],
    "deployer": ["GET sd:x", "SET sd:x 1", "FCALL stream_dedup_2_advance 1 sd:index", "SCAN 0"],
}


def documented(page: str, begin: str) -> set[str]:
    """Return the rules that a page gives for one namespace, without those of all users."""
    (found,) = re.findall(rf"`({re.escape(begin)}[^`]*NAMESPACE:\*)`", (DOCS / page).read_text())
    return {rule.replace("NAMESPACE:*", "sd*:*") for rule in found.split()} - COMMON


def test_the_file_gives_what_the_pages_say() -> None:
    worker = documented("redis.md", "+fcall +wait")
    assert RULES["worker"] - COMMON == worker
    assert documented("groups.md", "+fcall +get") <= worker
    assert RULES["operator"] - COMMON == worker | {"+scan", "+hscan", "+zscan"}
    assert RULES["reader"] - COMMON == documented("query.md", "+fcall_ro")
    assert documented("groups.md", "+get +hello") <= RULES["reader"]
    assert RULES["deployer"] - COMMON == {"+function|load"}


def test_the_file_lets_nobody_in_before_passwords_are_given() -> None:
    assert RULES["default"] >= {"off", "resetpass", "-@all"}
    for rules in RULES.values():
        assert not any(rule.startswith((">", "#", "nopass")) for rule in rules)


@pytest.mark.parametrize("user", MAY)
def test_each_user_may_do_its_work_and_nothing_else(user: str, secure_redis: SecureRedis) -> None:
    with secure_redis.client() as admin:

        def answer(command: str) -> str:
            words = command.split()
            return str(admin.execute_command("ACL", "DRYRUN", user, *words))  # type: ignore[no-untyped-call]

        assert [command for command in MAY[user] if answer(command) != "OK"] == []
        assert [command for command in NEVER + MAY_NOT[user] if answer(command) == "OK"] == []


def test_a_worker_runs_forgets_and_sweeps(
    secure_redis: SecureRedis,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secure_redis.flush()
    given = {
        "redis_url": secure_redis.url,
        "redis_ca_file": certificates.ca,
        "redis_certificate_file": certificates.client.certificate,
        "redis_key_file": certificates.client.key,
        "redis_username": "worker",
        "redis_password": PASSWORD,
    }
    for name, value in given.items():
        monkeypatch.setenv(ENV_PREFIX + name.upper(), str(value))
    monkeypatch.chdir(tmp_path)
    documents = tmp_path / "documents.jsonl"
    documents.write_text('{"id": "a", "text": "one text"}\n{"id": "b", "text": "one text"}\n')

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert '"original_id":"a"' in call("run", str(documents), "--redis").splitlines()[1]
    call("forget", "a")
    call("sweep")
