"""What is tried on a mutant: tests, random schedules, seeds of the simulation.

All of it runs in the process that has the mutant; a program that a test starts has not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Rung(NamedTuple):
    """Something that is tried.

    Attributes:
        name: what it is called in reports.
        run: tries it; returns what failed, nothing if all went well, or raises.
    """

    name: str
    run: Callable[[], str]


def pytests(*paths: str, only: str = "") -> Rung:
    """Run tests, up to the first that fails.

    Args:
        paths: files, in this order.
        only: which of their tests; see ``-k`` of pytest.
    """

    def run() -> str:
        import pytest  # noqa: PLC0415 - only once the mutant is in place

        failed: list[str] = []

        class Listener:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.failed:
                    failed.append(report.nodeid)

        # Plugins are left out but for the one that the settings name: to load them takes long.
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        options = ["-x", "-q", "-p", "pytest_timeout", "-p", "no:cacheprovider", "--no-header"]
        chosen = ["-k", only] if only else []
        code = pytest.main([*options, *chosen, *paths], plugins=[Listener()])
        if code == pytest.ExitCode.OK:
            return ""
        return failed[0] if failed else f"pytest ended with {int(code)}"

    names = " ".join(path.rpartition("/")[2] for path in paths)
    return Rung(f"{names} -k '{only}'" if only else names, run)


def schedules(count: int) -> Rung:
    """Run random schedules of the protocol on a model of the index."""

    def run() -> str:
        from tests.models.claims import Schedule  # noqa: PLC0415

        return _first(f"schedule {seed}" for seed in range(count) if Schedule(seed).run())

    return Rung(f"{count} schedules", run)


def redis_schedules(count: int) -> Rung:
    """Run random schedules on a real Redis and on the model, which must come to the same end."""

    def run() -> str:
        from tests.integration.test_schedules import opened  # noqa: PLC0415
        from tests.integration.test_schedules import run as run_all  # noqa: PLC0415
        from tests.models.redis_claims import findings  # noqa: PLC0415
        from tests.services.redis import RedisServer  # noqa: PLC0415

        with RedisServer() as server:
            for partitions, by_hamming in ((1, False), (1, True), (4, False)):
                with opened(server.url, partitions) as store:
                    wanted = range(count)
                    ended = run_all(store, wanted, by_hamming=by_hamming)
                    found = _first(findings(ended, wanted))
                if found:
                    return found
        return ""

    return Rung(f"{count} schedules on Redis", run)


def seeds(count: int) -> Rung:
    """Run seeds of the simulation."""

    def run() -> str:
        from tests.simulation.simulation import simulate_all  # noqa: PLC0415

        return _first(
            f"seed {seed}: {(result.violations or ['a worker died'])[0]}"
            for seed, result in simulate_all(range(count))
            if result.violations or result.events["died"]
        )

    return Rung(f"{count} seeds", run)


def _first(found: Iterable[str]) -> str:
    return next(iter(found), "")
