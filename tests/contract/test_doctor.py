"""docs/doctor.md lists the checks that there are, and shows an output as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from stream_dedup.cli.main import cli
from stream_dedup.doctor.examination import CHECKS
from stream_dedup.doctor.redis_look import CALLS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "doctor.md").read_text()
REDIS = (DOCS / "redis.md").read_text()


def test_the_page_has_the_table_of_all_checks() -> None:
    printed = CliRunner().invoke(cli, ["doctor", "--markdown"]).stdout

    assert printed.count("\n") == len(CHECKS) + 2
    assert printed in PAGE


def test_the_example_names_the_checks_in_their_order() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    named = re.findall(r"^(?:ok|hint|warning|error) +([a-z]+\.[a-z_]+) ", shown, re.MULTILINE)

    assert named == [one.name for one in CHECKS if one.name != "shadow.redis"]


def test_it_asks_for_the_rights_that_are_documented() -> None:
    (rules,) = re.findall(r"`(\+fcall [^`]*)`", REDIS)

    asked = {f"+{call.split()[0].lower()}" for call in CALLS}

    assert asked == {rule for rule in rules.split() if rule.startswith("+")}
