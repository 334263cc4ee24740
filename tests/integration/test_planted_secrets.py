"""Secrets that are in use are in nothing that programs print, log, serve, publish or keep."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

from stream_dedup.cli.main import cli
from stream_dedup.settings import ENV_PREFIX
from tests.services.planted import (
    MARKER,
    VARIANTS,
    Source,
    Variant,
    in_environment,
    in_files,
    in_toml,
    value_of,
)
from tests.services.process import free_ports
from tests.services.redis import RedisServer
from tests.services.worker import Sent, Worker, document

PROGRAM = [sys.executable, "-c", "from stream_dedup.cli.main import main; main()"]
EXAMPLES = Path(__file__).parents[2] / "examples" / "documents.jsonl"
TEXT = " ".join(f"word{number}" for number in range(60))
DOCUMENTS = [
    Sent(document(id="a", text=TEXT)),
    Sent(document(id="b", text=TEXT)),
    Sent(b"not json"),
]


@pytest.fixture(autouse=True)
def _alone(alone: None) -> None:
    """Keep other settings out, before any are planted."""


def in_address(variant: Variant, folder: Path) -> dict[str, str]:
    """Return the environment that has the password of Redis in its address."""
    given = in_environment(variant, folder)
    password = quote(given.pop(f"{ENV_PREFIX}REDIS_PASSWORD"), safe="")
    return given | {f"{ENV_PREFIX}REDIS_URL": f"redis://planted:{password}@"}


SOURCES: dict[str, Source] = {
    "environment": in_environment,
    "files": in_files,
    "toml": in_toml,
    "address": in_address,
}


@pytest.fixture(params=SOURCES)
def planted(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer, redis_url: str
) -> Iterator[dict[str, str]]:
    """The environment that gives every secret which works without a login to Kafka.

    At the end Redis is looked through: it must have something, and no secret.
    """
    url = f"{ENV_PREFIX}REDIS_URL"
    given = SOURCES[request.param](VARIANTS["plain"], tmp_path)
    place = redis_url.removeprefix("redis://")
    with redis_server.client() as client:
        client.acl_setuser(
            "planted",
            enabled=True,
            passwords=[f"+{value_of('redis_password')}"],
            categories=["+@all"],
            keys=["*"],
            channels=["*"],
            reset=True,
        )
    yield given | {url: given.get(url, "redis://planted@") + place}
    with redis.Redis.from_url(redis_url) as raw:
        content = content_of(raw)
        raw.acl_deluser("planted")
    assert len(content) > 1000
    assert MARKER not in content


def content_of(client: redis.Redis) -> str:
    """Return every key of a database with all that it holds."""
    reading: dict[bytes, Any] = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
    }
    keys: Any = list(client.scan_iter())
    return repr([(key, reading[client.type(key)](key)) for key in keys])  # type: ignore[index]


def run(*arguments: str, environment: Mapping[str, str], given: str = "") -> tuple[int, str]:
    """Run a command; return its exit code and all that it printed."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        env=os.environ | dict(environment),
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def ask(port: int, path: str, token: str = "") -> tuple[int, str]:
    """Ask a server; return the status, and headers and body in one; status 0 without an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return error.code, f"{error.headers}{error.read().decode()}"
    except OSError as error:
        return 0, str(error)


def command_lines(pid: int) -> list[str]:
    """Return the command lines of a process and of all that it has started."""
    process = Path(f"/proc/{pid}")
    children = [int(child) for child in (process / f"task/{pid}/children").read_text().split()]
    own = (process / "cmdline").read_bytes().decode()
    return [own, *(line for child in children for line in command_lines(child))]


@pytest.mark.parametrize(
    ("planted", "transport", "log_format"),
    [
        ("environment", "kafka-python", "text"),
        ("files", "confluent", "json"),
        ("toml", "kafka-python", "json"),
        ("address", "confluent", "text"),
    ],
    indirect=["planted"],
)
def test_a_worker_tells_none(
    worker: Worker,
    planted: dict[str, str],
    transport: str,
    log_format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    del worker.flags["redis-url"]
    worker.flags |= {"transport": transport, "log-format": log_format}
    port = int(worker.flags["http-port"])

    worker.start(processes="2")
    worker.send(DOCUMENTS)
    published = worker.receive(worker.topics.output, 2)
    dead = worker.receive(worker.topics.dead_letter, 1)
    assert worker.process is not None
    flags = command_lines(worker.process.pid)
    answers = {
        (path, token): ask(port, path, token)
        for path in ("/metrics", "/healthz", "/readyz", "/")
        for token in ("", value_of("http_token"), "another")
    }
    taken = worker.fail()  # the port is in use
    worker.stop()
    mismatch = worker.fail(threshold="0.5")

    # All of them were in use.
    assert answers["/metrics", value_of("http_token")][0] == 200
    assert [answers["/metrics", token][0] for token in ("", "another")] == [401, 401]
    assert "WWW-Authenticate: Bearer" in answers["/metrics", ""][1]
    assert answers["/readyz", ""][0] == answers["/healthz", "another"][0] == 200
    assert (taken[0], mismatch[0]) == (2, 78)
    assert len(flags) >= 3
    seen = [published, dead, flags, list(answers.values()), taken, mismatch, worker.log.read_text()]
    assert MARKER not in repr(seen)


@pytest.mark.parametrize("planted", ["environment", "files"], indirect=True)
def test_the_service_tells_none(planted: dict[str, str], tmp_path: Path) -> None:
    code, ran = run("run", str(EXAMPLES), "--redis", "-o", "-", environment=planted)
    assert code == 0, ran
    (port,) = free_ports(1)
    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            [*PROGRAM, "serve", "--serve-port", str(port)],
            env=os.environ | planted,
            stdout=output,
            stderr=output,
        )
    try:
        while ask(port, "/readyz")[0] != 200:
            assert service.poll() is None, log.read_text()
        paths = ("/metrics", "/healthz", "/openapi.json", "/v1/groups/0123456789abcdef01234567")
        tokens = ("", value_of("serve_token"), "another")
        answers = {(path, token): ask(port, path, token) for path in paths for token in tokens}
        flags = command_lines(service.pid)
    finally:
        service.terminate()
        service.wait(30)

    statuses = [[answers[path, token][0] for token in tokens] for path in paths]
    assert statuses == [[401, 200, 401], [200] * 3, [200] * 3, [401, 404, 401]]
    assert MARKER not in repr([list(answers.values()), flags, log.read_text(), ran])


@pytest.mark.parametrize("planted", ["files", "address"], indirect=True)
def test_commands_tell_none(planted: dict[str, str], tmp_path: Path) -> None:
    commands = {
        "run": ("run", str(EXAMPLES), "--redis", "-o", "out.jsonl"),
        "state": ("run", str(EXAMPLES), "--state", "s.db", "-o", "out2.jsonl", "--jobs", "2"),
        "query": ("query", TEXT, "--json"),
        "explain": ("explain", f"{EXAMPLES}:1", "--redis"),
        "audit": ("audit",),
        "export": ("export", "o.parquet"),
        "plan": ("plan", "--documents", "1e6", "--write", "plan.toml"),
        "settings": ("settings", "--json"),
        "generate": ("generate", "-n", "3"),
        "forget": ("forget", "en-01"),
        "sweep": ("sweep",),
        "mismatch": ("query", TEXT, "--threshold", "0.5"),
        "no such flag": ("run", str(EXAMPLES), "--seed", "1"),
    }

    done = {name: run(*words, environment=planted) for name, words in commands.items()}

    codes = {name: code for name, (code, _) in done.items() if code}
    assert codes == {"query": 1, "mismatch": 78, "no such flag": 2}, done  # 1: not known
    given = {path.name for path in tmp_path.iterdir() if path.suffix in {".secret", ".toml"}}
    kept = {
        path.name: path.read_bytes()
        for path in tmp_path.iterdir()
        if path.name == "plan.toml" or path.name not in given
    }
    assert {"out.jsonl", "s.db", "o.parquet", "plan.toml"} <= set(kept)
    assert MARKER not in repr([done, kept])


class TestWrongServices:
    """Nothing is told by what goes wrong, either."""

    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("transport", ["kafka-python", "confluent"])
    def test_nobody_is_there(self, variant: str, transport: str, tmp_path: Path) -> None:
        kafka, http = free_ports(2)
        environment = in_environment(VARIANTS[variant], tmp_path) | {
            f"{ENV_PREFIX}KAFKA_BOOTSTRAP": f"127.0.0.1:{kafka}",
            f"{ENV_PREFIX}REDIS_URL": "redis://planted@127.0.0.1:1/0",
            f"{ENV_PREFIX}HTTP_PORT": str(http),
            f"{ENV_PREFIX}TRANSPORT": transport,
        }
        for name in ("certificate.pem", "key.pem"):
            (tmp_path / name).write_text("this is none")

        done = [
            run(*words, environment=environment)
            for words in (("worker",), ("query", TEXT), ("groups",))
        ]
        if "doctor" in cli.list_commands(None):  # type: ignore[arg-type]
            done.append(run("doctor", environment=environment))

        assert all(code for code, _ in done), done
        assert MARKER not in repr(done)

    @pytest.mark.parametrize("transport", ["kafka-python", "confluent"])
    def test_kafka_refuses_the_login(
        self, transport: str, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variant = Variant(
            ("kafka_password",),
            {
                "kafka_security_protocol": "SASL_PLAINTEXT",
                "kafka_sasl_mechanism": "PLAIN",
                "kafka_username": "someone",
            },
        )
        for name, value in in_environment(variant, tmp_path).items():
            monkeypatch.setenv(name, value)

        code, said = worker.fail(transport=transport)

        assert code == 69
        assert "Kafka" in said
        assert MARKER not in said

    def test_redis_refuses_the_login(self, redis_url: str, tmp_path: Path) -> None:
        variant = Variant(("redis_password",), {"redis_url": redis_url, "redis_username": "x"})

        code, said = run("query", TEXT, environment=in_environment(variant, tmp_path))

        assert code == 69
        assert "login" in said
        assert MARKER not in said

    def test_an_error_that_nobody_expected(self, tmp_path: Path) -> None:
        program = (
            "import stream_dedup.cli.settings as module\n"
            "def fail(*_, **__):\n"
            "    from stream_dedup.settings_sources import load_settings\n"
            "    raise RuntimeError(load_settings().seed.get_secret_value())\n"
            "module.click.echo = fail\n"
            "from stream_dedup.cli.main import main; main()"
        )
        environment = in_environment(VARIANTS["plain"], tmp_path)

        done = subprocess.run(
            [sys.executable, "-c", program, "settings"],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 1
        assert done.stderr.endswith("RuntimeError: **********\n")
        assert MARKER not in done.stderr
