"""What a suite's runs gave, and how those of another loop compare with stock asyncio's.

Pure: suites.py runs, this judges, reports.py shows. The rule: a test is held against a loop if it is bad in any of
its runs and in none of stock's; and a pass counts for nothing where the loop did not run and stock's did. Where
nothing ran, or no loop did, or another than the one that was asked for, nothing is proved at all.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

BAD = ("failed", "error", "hang", "crash")
STOCK = "asyncio"


@dataclasses.dataclass
class Result:
    """A test's result in one run."""

    outcome: str
    message: str = ""
    seconds: float = 0.0
    drove: bool = False
    foreign: tuple[str, ...] = ()

    @property
    def bad(self) -> bool:
        return self.outcome in BAD

    @property
    def grave(self) -> bool:
        """Not a failing test, but the end of its process."""
        return self.outcome in ("hang", "crash")

    @property
    def ran(self) -> bool:
        return self.outcome != "skipped"


@dataclasses.dataclass
class Run:
    """One run of a suite on one loop."""

    loop: str
    number: int
    tests: dict[str, Result] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    restarts: int = 0
    left_out: int = 0
    complete: bool = False
    injected: dict[str, str] = dataclasses.field(default_factory=dict)
    """The class that the tests got for a loop, and its package's file."""

    def read(self, path: Path) -> str | None:
        """Takes in the lines that a process wrote; the test it was at when it ended, if it was at one."""
        current: str | None = None
        for line in path.read_text().splitlines() if path.exists() else ():
            said: dict[str, Any] = json.loads(line)
            if "start" in said:
                current = said["start"]
            elif "id" in said:
                current = None
                self._add(said)
            elif "finished" in said:
                self.complete, current = said["finished"] in (0, 1, 5), None
            elif "left_out" in said:
                self.left_out = max(self.left_out, said["left_out"])
                self.injected = said["injected"]
        return current

    def _add(self, said: dict[str, Any]) -> None:
        name, number = said["id"], 1
        while name in self.tests:  # two tests of one name
            number += 1
            name = f"{said['id']}#{number}"
        self.tests[name] = Result(
            said["outcome"],
            said.get("message", ""),
            said.get("seconds", 0.0),
            said.get("drove", False),
            tuple(said.get("foreign", ())),
        )

    def ids(self, wanted: Callable[[Result], bool]) -> set[str]:
        return {name for name, test in self.tests.items() if wanted(test)}

    def count(self) -> dict[str, Any]:
        """The figures of this run."""
        tests = self.tests.values()
        return {
            "tests": len(tests),
            "passed": sum(test.outcome in ("passed", "xfailed") for test in tests),
            "failed": sum(test.bad for test in tests),
            "skipped": sum(not test.ran for test in tests),
            "left_out": self.left_out,
            "drove": sum(test.drove for test in tests),
            "seconds": round(self.seconds, 1),
            "restarts": self.restarts,
            "complete": self.complete,
        }


@dataclasses.dataclass
class Comparison:
    """How the runs of a loop differ from stock's; every list is of tests that speak against it."""

    bad: list[str]
    """Bad in a run of this loop, in none of stock's; or an expected failure, where stock's always passed."""
    not_run: list[str]
    """Run by stock every time, and not by a run of this loop."""
    more: list[str]
    """Run by this loop, and never by stock."""
    not_driven: list[str]
    """Not bad, but our loop did not run in it, though stock's does every time."""

    @property
    def clean(self) -> bool:
        return not (self.bad or self.not_run or self.more or self.not_driven)


def union(sets: Iterable[set[str]]) -> set[str]:
    return set().union(*sets)


def common(sets: Iterable[set[str]]) -> set[str]:
    found = list(sets)
    return set.intersection(*found) if found else set()


def compare(stock: list[Run], runs: list[Run]) -> Comparison:
    """Judges the runs of a loop by stock's."""
    stock_bad = union(run.ids(lambda test: test.bad) for run in stock)
    stock_ran = [run.ids(lambda test: test.ran) for run in stock]
    stock_drove = common(run.ids(lambda test: test.drove) for run in stock)
    ran = [run.ids(lambda test: test.ran) for run in runs]
    bad = union(run.ids(lambda test: test.bad) for run in runs)
    given_up = union(run.ids(lambda test: test.outcome == "xfailed") for run in runs)
    stock_passed = common(run.ids(lambda test: test.outcome == "passed") for run in stock)
    idle = union(run.ids(lambda test: not test.bad and not test.drove) for run in runs)
    missing = union(common(stock_ran) - one for one in ran)
    return Comparison(
        bad=sorted((bad - stock_bad) | (given_up & stock_passed)),
        not_run=sorted(missing - stock_bad),
        more=sorted(union(ran) - union(stock_ran)),
        not_driven=sorted((stock_drove & idle) - missing),
    )


def doubts(stock: list[Run], runs: list[Run], paths: Mapping[str, str]) -> list[str]:
    """What makes the runs of a loop, and their comparison with stock's, prove nothing; `paths`: where a loop lies."""
    if not stock or not runs:
        return [f"no runs of both {STOCK} and uvpy to compare"]
    found = []
    if not common(run.ids(lambda test: test.drove) for run in stock):
        ran = any(run.ids(lambda test: test.ran) for run in stock)
        found.append(f"the loop ran in no test of every run on {STOCK}" if ran else f"no test ran on {STOCK}")
    for run in [*stock, *runs]:
        if not run.complete:
            found.append(f"{run.loop} {run.number} did not come to its end")
        loop, file = run.injected.get("loop", ""), run.injected.get("file", "")
        if loop.partition(".")[0] != run.loop or not file.startswith(paths[run.loop]):
            found.append(f"{run.loop} {run.number} ran on {loop or 'no injected loop'} {file}".rstrip())
    return found


def foreign(runs: list[Run]) -> dict[str, list[str]]:
    """Tests in which a loop ran that was not the one to be tested, with the types of those loops."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, test in run.tests.items():
            if test.foreign:
                found.setdefault(name, set()).update(test.foreign)
    return {name: sorted(kinds) for name, kinds in sorted(found.items())}


def gist(message: str) -> str:
    """The line of a failure that says most: its last one with an exception, else its first."""
    lines = [line.strip(" |").removeprefix("E ").strip() for line in message.strip().splitlines()]
    errors = [line for line in lines if "Error: " in line or "Warning: " in line]
    found = errors[-1] if errors else next(iter(lines), "")
    return re.sub(r" at 0x[0-9a-f]+", "", found)[:160]
