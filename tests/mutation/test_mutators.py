"""Mistakes are made where they can be made, and the list of equivalents fits the code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import redis

from tests.mutation.equivalent import StaleError, load, reasons
from tests.mutation.journal import Journal
from tests.mutation.lua_mutants import lua_mutants
from tests.mutation.mutant import Mutant, read
from tests.mutation.python_mutants import python_mutants
from tests.mutation.report import Run, report
from tests.mutation.sample import sample
from tests.mutation.targets import TARGETS, all_mutants
from tests.mutation.trial import Trial


def made(source: str) -> set[tuple[str, str]]:
    """Return the kind of each mutant, and what becomes of its line."""
    return {(one.operator, one.mutated_line(source)) for one in python_mutants("a.py", source)}


@pytest.fixture(scope="module")
def every() -> list[Mutant]:
    return all_mutants()


PYTHON = {
    "f(a < b)": {("statement", "pass"), ("comparison", "f(a <= b)")},
    "if (a >= b): c()": {
        ("comparison", "if (a > b): c()"),
        ("negation", "if (not (a >= b)): c()"),
        ("statement", "if (a >= b): pass"),
    },
    "x = a is not b": {("comparison", "x = a is b")},
    "x = a not  in b": {("comparison", "x = a in b")},
    "x = a == b == c": {("comparison", "x = a != b == c"), ("comparison", "x = a == b != c")},
    "x = a and (b) and c": {("and/or", "x = a or (b) and c"), ("and/or", "x = a and (b) or c")},
    "x = a + (b)": {("arithmetic", "x = a - (b)")},
    "x = not a": {("negation", "x = a")},
    "x = ~(a | b)": {("negation", "x = (a | b)"), ("arithmetic", "x = ~(a & b)")},
    "x = 5": {("constant", "x = 6"), ("constant", "x = 4")},
    "x = 0.5": {("constant", "x = 1.5")},
    "x = True": {("constant", "x = False")},
    "x = 'é', 3": {("constant", "x = 'é', 4"), ("constant", "x = 'é', 2")},
    "x = b if c else d": {("negation", "x = b if not (c) else d")},
    "x = [a for a in b if a]": {("negation", "x = [a for a in b if not (a)]")},
    # Nothing to be mistaken about.
    "x: int | None = y": set(),
    "Call = Put | Read": set(),
    "x = zip(a, strict=True)": set(),
    "x = f'{a + 1}'": set(),
    "x = None": set(),
    "'''A docstring.'''": set(),
    "log.info('x', 1)": set(),
}


@pytest.mark.parametrize("source", PYTHON)
def test_python_mutants(source: str) -> None:
    assert made(source) == PYTHON[source]


def test_python_statements() -> None:
    source = """
def run(self, n=1):
    voided = 0
    for one in self:
        try:
            voided = one()
            self.count += voided
        except KeyError as error:
            msg = "gone" + 1
            raise ValueError(msg, 3) from error
        if not one:
            continue
    del self.one
    return voided
"""
    lines = made(source)

    assert {line for kind, line in lines if kind == "statement"} == {"pass", "break", "return None"}
    assert ("handler", "except () as error:") in lines
    assert ("constant", "def run(self, n=2):") in lines
    assert ("negation", "if one:") in lines
    assert ("arithmetic", "self.count -= voided") in lines
    assert not [line for _, line in lines if "msg" in line]
    names = Counter(one.function for one in python_mutants("a.py", source))
    assert set(names) == {"run"}


LUA = """
local function other()
  return 1
end

local function probe(keys, args)
  local rows, n = args[1], 1 -- 2 comments
  for at = 1, #rows do
    if rows[at] == 'P' and n <= 0x10 then
      call('HSETNX', n)
      n = n + 1
      break
    end
  end
  return {
    n,
  }
end
"""


def test_lua_mutants() -> None:
    mutants = lua_mutants("a.lua", LUA, frozenset({"probe"}))
    lines = {(one.operator, one.mutated_line(LUA)) for one in mutants}

    assert lines == {
        ("constant", "local rows, n = args[1], 0 -- 2 comments"),
        ("constant", "local rows, n = args[1], 2 -- 2 comments"),
        ("constant", "for at = 0, #rows do"),
        ("constant", "for at = 2, #rows do"),
        ("comparison", "if rows[at] ~= 'P' and n <= 0x10 then"),
        ("comparison", "if rows[at] == 'P' and n < 0x10 then"),
        ("constant", "if rows[at] == 'O' and n <= 0x10 then"),
        ("constant", "if rows[at] == 'P' and n <= 15 then"),
        ("constant", "if rows[at] == 'P' and n <= 17 then"),
        ("and/or", "if rows[at] == 'P' or n <= 0x10 then"),
        ("negation", "if not (rows[at] == 'P' and n <= 0x10) then"),
        ("constant", "call('HSET', n)"),
        ("arithmetic", "n = n - 1"),
        ("constant", "n = n + 0"),
        ("constant", "n = n + 2"),
        ("statement", ""),
    }
    left_out = [one.line(LUA) for one in mutants if one.operator == "statement"]
    assert left_out == ["call('HSETNX', n)", "n = n + 1", "break"]


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no function none"):
        lua_mutants("a.lua", LUA, frozenset({"none"}))


@pytest.mark.integration
def test_redis_can_load_every_lua_mutant(redis_url: str) -> None:
    (target,) = [one for one in TARGETS if one.path.endswith(".lua")]
    source, refused = read(target.path), []
    with redis.Redis.from_url(redis_url) as client:
        for mutant in target.mutants():
            try:
                client.function_load(mutant.apply(source), replace=True)
            except redis.ResponseError as error:
                refused.append((mutant.mutated_line(source), str(error)))

    assert not refused


def test_a_diff_shows_what_differs() -> None:
    source = "import a\nb = 1\nimport c\n"
    mutant = python_mutants("a.py", source)[-1]

    assert mutant.diff(source) == " import a\n-b = 1\n+b = 2\n import c"
    assert (mutant.line_number(source), mutant.line(source)) == (2, "b = 1")


def test_every_kind_is_among_all_mutants(every: list[Mutant]) -> None:
    assert len(every) == len(set(every))
    kinds = {"comparison", "and/or", "negation", "arithmetic", "constant", "statement", "handler"}
    assert {one.operator for one in every} == kinds
    assert {one.path for one in every} == {target.path for target in TARGETS}


def test_mutants_are_python(every: list[Mutant]) -> None:
    for mutant in sample([one for one in every if one.path.endswith(".py")], 60, seed=1):
        compile(mutant.apply(read(mutant.path)), mutant.path, "exec")


def test_a_sample_has_its_share_of_each_module_and_kind() -> None:
    every = [Mutant(f"{n % 3}", "", f"{n % 2}", n, n, "") for n in range(600)]
    every += [Mutant("rare", "", "rare", n, n, "") for n in range(7)]

    once = sample(every, 61, seed=1)

    assert once == sample(every, 61, seed=1) != sample(every, 61, seed=2)
    assert len(once) == len(set(once)) == 61
    shares = Counter((one.path, one.operator) for one in once)
    assert all(10 <= count <= 11 for stratum, count in shares.items() if stratum[0] != "rare")
    assert sample(every, 9999, seed=1) == every


def test_every_equivalent_is_a_mutant_with_a_reason(every: list[Mutant]) -> None:
    found = reasons(every, load())

    assert all(len(reason) > 20 for reason in found.values())


def test_an_entry_without_a_mutant_is_an_error(tmp_path: Path, every: list[Mutant]) -> None:
    path = tmp_path / "equivalents.toml"
    path.write_text(
        '[[equivalent]]\npath = "stream_dedup/stream/loop.py"\nline = "gone"\n'
        'operator = "constant"\nbecomes = ["away"]\nreason = "none"\n'
    )

    with pytest.raises(StaleError, match=r"loop\.py: away"):
        reasons(every, load(path))


def test_a_journal_remembers_who_was_noticed(tmp_path: Path, every: list[Mutant]) -> None:
    file = tmp_path / "journal"
    killed, survivor, new = every[:3]
    journal = Journal(file)
    journal.add(Trial(survivor, "", "", ()))
    journal.add(Trial(killed, "seeds", "seed 3", ()))

    again = Journal(file)

    assert again.known(killed, survivors=False) == Trial(killed, "seeds", "seed 3", ())
    assert again.known(survivor, survivors=False) is None
    assert again.known(survivor, survivors=True) == Trial(survivor, "", "", ())
    assert again.known(new, survivors=True) is None


def test_outcomes_make_a_report(every: list[Mutant]) -> None:
    killed, late, survivor, known = every[:4]
    trials = [
        Trial(killed, "seeds", "seed 3", ()),
        Trial(late, "seeds", "", ()),
        Trial(survivor, "", "", ()),
    ]
    run = Run("2026-01-02", 9, 1500, trials, {known: "It is the same."})

    text = report(run)

    assert run.share == pytest.approx(2 / 3)
    assert "a sample of 4 (seed 9) of all 1,500 mutants" in text
    assert "**66.7 % are noticed**: 1 killed" in text
    assert survivor.diff(read(survivor.path)) in text
    assert "It is the same." in text
