"""Runs the doctor, and the commands that it gives as remedies."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from stream_dedup.settings import ENV_PREFIX, Settings
from tests.services.kafka import LIBRARIES
from tests.services.process import find_program

#: What the scripts of Kafka's distribution run.
_KAFKA = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}


def run(command: str, answer: str = "") -> str:
    """Run a command as a user would who has copied it; return what it prints.

    Args:
        command: as the doctor spells it.
        answer: what the user enters when asked.
    """
    program, *arguments = shlex.split(command)
    if program in _KAFKA:
        java = [find_program("java"), "-XX:TieredStopAtLevel=1", "-cp", f"{LIBRARIES}/*"]
        call = [*java, _KAFKA[program], *arguments]
    elif program == "stream-dedup":
        call = [str(Path(sys.executable).with_name(program)), *arguments]
    else:
        call = [find_program(program), *arguments]
    done = subprocess.run(
        call, input=answer, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def doctor(settings: Settings) -> dict[str, list[dict[str, str]]]:
    """Run the doctor as a program; return its findings by check.

    A client of Kafka that never got a connection cannot be closed, so that is tried elsewhere.
    """
    given = settings.model_dump(exclude_defaults=True)
    named = {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in given.items()}
    program = str(Path(sys.executable).with_name("stream-dedup"))
    done = subprocess.run(
        [program, "doctor", "--json"],
        env={**os.environ, **named},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found: dict[str, list[dict[str, str]]] = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["check"], []).append(one)
    return found
