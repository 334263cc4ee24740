"""``python -m tests.campaign``: break everything, then check that nothing is lost."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
import warnings
from pathlib import Path

# kafka-python reads its message schemas with functions that are deprecated (see tests/conftest.py).
warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)

from tests.campaign.campaign import Order, campaign  # noqa: E402
from tests.campaign.faults import KINDS  # noqa: E402
from tests.campaign.fleet import Size  # noqa: E402
from tests.campaign.plan import draw  # noqa: E402
from tests.campaign.report import report  # noqa: E402

#: Violations that are listed.
_LISTED = 40


def main() -> int:
    """Run it; fail where something does not hold."""
    asked = _arguments()
    seed = asked.seed if asked.seed is not None else int(time.time())
    plan = draw(seed, asked.faults, asked.only or KINDS, long=asked.long)
    command = ["python", "-m", "tests.campaign", *sys.argv[1:]]
    if asked.seed is None:
        command.append(f"--seed={seed}")
    _print(f"{shlex.join(command)}\n\nseed {seed}, {len(plan)} faults:")
    for planned in plan:
        _print(f"    {planned}")
    if asked.plan:
        return 0
    folder = Path(tempfile.mkdtemp(prefix="stream-dedup-campaign-"))
    size = Size(asked.brokers, asked.primaries, asked.workers)
    order = Order(size, asked.documents, asked.rate, seed, plan)
    outcome = campaign(order, folder, _print)
    text = report(order, outcome, shlex.join(command)).markdown()
    _print(f"\n{text}")
    if asked.report is not None:
        asked.report.write_text(text, encoding="utf-8")
    for violation in outcome.violations[:_LISTED]:
        _print(f"{violation.kind}: {violation.detail}")
    if outcome.violations:
        _print(f"{len(outcome.violations)} violations; the logs are in {folder}")
    return bool(outcome.violations)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.campaign",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="of plan and documents; default: the time")
    parser.add_argument("--documents", type=int, default=200_000, help="least number of messages")
    parser.add_argument("--rate", type=float, default=600.0, help="messages a second meanwhile")
    parser.add_argument("--faults", type=int, default=56, help="how many")
    parser.add_argument("--only", action="append", choices=KINDS, help="kinds to draw from")
    parser.add_argument("--long", action="store_true", help="faults may last longer")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--primaries", type=int, default=3, help="of Redis, each with a replica")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--plan", action="store_true", help="only print what would happen")
    parser.add_argument("--report", type=Path, help="file for the figures, Markdown")
    return parser.parse_args()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
