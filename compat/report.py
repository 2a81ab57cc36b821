# SPDX-License-Identifier: MIT
"""Judges results by the expectations and by what stock asyncio did, and prints the summary."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

from engine import ModuleRun, TestResult
from expectations import Entry, Expectations
from interpreters import Interpreter
from records import Stock, kind_of

COLUMNS = ("tests", "passed", "skipped", "expected", "as stock", "unexpected", "left out", "drove")


@dataclasses.dataclass
class Verdict:
    """What one test's result means. `category` is one of COLUMNS, in its middle part."""

    test: str
    result: TestResult
    category: str
    why: str = ""
    entry: Entry | None = None


@dataclasses.dataclass
class ModuleReport:
    """A judged module."""

    run: ModuleRun
    verdicts: list[Verdict] = dataclasses.field(default_factory=list)
    foreign: bool = False
    """Our loop was never made in it, though stock's is."""

    def count(self, column: str) -> int:
        """The number for one column of the table."""
        if column == "tests":
            return len(self.verdicts)
        if column == "drove":
            return sum(verdict.result.ran > 0 for verdict in self.verdicts)
        return sum(verdict.category == column for verdict in self.verdicts)


@dataclasses.dataclass
class Report:
    """All modules judged, and what is wrong with the expectations themselves."""

    python: Interpreter
    loop: str
    modules: list[ModuleReport]
    stale: list[Entry]
    stock: Stock
    findings: list[tuple[str, str]]

    def unexpected(self) -> list[Verdict]:
        """Every test that did what it should not have."""
        return [v for module in self.modules for v in module.verdicts if v.category == "unexpected"]

    def foreign(self) -> list[str]:
        """The modules in which ours was never made."""
        return [module.run.name for module in self.modules if module.foreign]

    def total(self, column: str) -> int:
        """The sum of a column."""
        return sum(module.count(column) for module in self.modules)

    def status(self) -> int:
        """Our exit status."""
        if self.foreign():
            return 3
        return 1 if self.unexpected() or self.stale else 0


def judge(
    python: Interpreter,
    loop: str,
    runs: list[ModuleRun],
    expectations: Expectations,
    stock: Stock,
    whole: bool,
) -> Report:
    """Judge all modules. `whole`: every module there is was run, and in full."""
    modules = [_judge_module(run, expectations, stock, stock.full == python.full) for run in runs]
    complete = {run.name for run in runs if run.complete and (run.loaded or run.skipped)}
    findings = [
        (test, line) for run in runs for test, line in run.findings if (test, kind_of(line)) not in stock.findings
    ]
    return Report(
        python, loop, modules, expectations.stale(complete, whole and len(complete) == len(runs)), stock, findings
    )


def _judge_module(run: ModuleRun, expectations: Expectations, stock: Stock, exact: bool) -> ModuleReport:
    report = ModuleReport(run)
    names = list(dict.fromkeys([*run.loaded, *run.results])) if run.complete else list(run.results)
    for test in names:
        entry = expectations.find(test)
        result = run.results.get(test)
        if entry is not None and entry.status == "deselect" and result is None:
            report.verdicts.append(Verdict(test, TestResult("deselect"), "left out", entry=entry))
            continue
        if result is None:
            result = _of_class(run, test)
        verdict = _judge_test(test, result, entry, stock, exact)
        report.verdicts.append(verdict)
    if run.skipped and stock.full and run.name not in stock.skipped_modules:
        result = TestResult("skip", run.skipped)
        report.verdicts.append(Verdict(f"{run.name}.<run>", result, "unexpected", "module skipped, not so by stock"))
    ran = {test for test, result in run.results.items() if result.status in ("pass", "fail", "error")}
    report.foreign = bool(ran & stock.made) and not any(result.made for result in run.results.values())
    return report


def _of_class(run: ModuleRun, test: str) -> TestResult:
    """The result of a test that was not reached: its class may have been skipped or failed as a whole."""
    group = test.removeprefix(run.name + ".").rpartition(".")[0]
    for holder, result in run.results.items():
        if holder.startswith(f"{run.name}.<setUp") and (f"{group})>" in holder or "setUpModule" in holder):
            return result
    return TestResult("error", "the test has no result")


def _judge_test(test: str, result: TestResult, entry: Entry | None, stock: Stock, exact: bool) -> Verdict:
    status = result.status
    usual = stock.status.get(test, "pass")
    if entry is not None:
        if status == entry.status:
            return Verdict(test, result, "expected", entry=entry)
        why = f"{status}, but expected.toml says {entry.status}"
        return Verdict(test, result, "unexpected", why, entry)
    if status not in ("pass", "skip"):
        if status == usual:
            return Verdict(test, result, "as stock")
        return Verdict(test, result, "unexpected", status)
    if status == "skip":
        # On a release that was not recorded, a test that is new or changed may skip: not for us to judge.
        if usual == "skip" or not exact:
            return Verdict(test, result, "skipped")
        return Verdict(test, result, "unexpected", f"skip ({result.message}), not so with stock")
    if exact and usual == "skip":
        return Verdict(test, result, "unexpected", "pass, but stock skips it")
    if exact and test in stock.ran and not result.ran:
        return Verdict(test, result, "unexpected", "pass, but without the loop that was to be tested")
    return Verdict(test, result, "passed")


def print_report(report: Report, logs: Path) -> None:
    """The summary, for people."""
    width = max([len(module.run.name) for module in report.modules] + [10])
    print(f"\n{'module':{width}}" + "".join(f"{column:>12}" for column in COLUMNS) + f"{'seconds':>10}")
    for module in report.modules:
        if module.run.skipped:
            continue
        cells = "".join(f"{module.count(column) or '-':>12}" for column in COLUMNS)
        again = f"  ({module.run.restarts} restarts)" if module.run.restarts else ""
        print(f"{module.run.name:{width}}{cells}{module.run.seconds:10.1f}{again}")
    cells = "".join(f"{report.total(column) or '-':>12}" for column in COLUMNS)
    print(f"{'total':{width}}{cells}{sum(module.run.seconds for module in report.modules):10.1f}")
    for module in report.modules:
        if module.run.skipped:
            print(f"not here: {module.run.name}: {module.run.skipped}")
    _print_expected(report)
    _print_findings(report.findings)
    _print_unexpected(report)
    _print_end(report, logs)


def _print_expected(report: Report) -> None:
    for category, title in (
        ("expected", "did not pass, as expected.toml says"),
        ("left out", "left out as duplicates"),
    ):
        numbers: dict[str, int] = {}
        for module in report.modules:
            for verdict in module.verdicts:
                if verdict.category == category and verdict.entry is not None:
                    entry = verdict.entry
                    label = f"{entry.status:8} {entry.kind:9} {entry.id}: {entry.reason}"
                    label += f" [{entry.link}]" if entry.link else ""
                    numbers[label] = numbers.get(label, 0) + 1
        if numbers:
            print(f"\n{title} ({sum(numbers.values())}):")
        for label, number in numbers.items():
            print(f"  {number:4} {label}")


def _print_findings(findings: list[tuple[str, str]]) -> None:
    if not findings:
        return
    print(f"\nleft over on stderr, not so with stock ({len(findings)} lines; they decide nothing):")
    for test, line in findings[:40]:
        print(f"  {test}: {line}")
    if len(findings) > 40:
        print(f"  ... and {len(findings) - 40} more in the logs")


def _print_unexpected(report: Report) -> None:
    unexpected = report.unexpected()
    if unexpected:
        print("\nunexpected:")
    for verdict in unexpected:
        print(f"  {verdict.test}: {verdict.why}")
        for line in _gist(verdict.result):
            print(f"      {line[:200]}")
    for entry in report.stale:
        claim = f"{report.python.full}, which it claims ({entry.python})"
        print(f"  {entry.id}: the entry matches no test on {claim}")


def _gist(result: TestResult) -> list[str]:
    """The lines of a message that say most, a traceback's last and a faulthandler dump's first."""
    lines = result.message.strip().splitlines()
    if result.status in ("fail", "error"):
        return lines[-6:]
    if result.status in ("timeout", "crash"):
        starts = [n for n, line in enumerate(lines) if line.startswith(("Timeout (", "Fatal Python error"))]
        return lines[:1] + lines[max(starts, default=1) :][:20]
    return []


def _print_end(report: Report, logs: Path) -> None:
    python, stock = report.python, report.stock
    print(f"\nPython {python.full}, loop {report.loop} {python.loop}; logs in {logs}")
    if not stock.full:
        print(f"stock asyncio was not recorded on {python.minor}: skips and driven tests were not judged")
    elif stock.full != python.full:
        print(f"stock asyncio was recorded on {stock.full}: skips and driven tests were not judged (--compare)")
    for name in report.foreign():
        print(f"INJECTION FAILED: {name} never made the loop to be tested, though stock's is made in it")
    wrong = len(report.unexpected()) + len(report.stale)
    run = report.total("tests") - report.total("left out")
    print(f"the loop ran in {report.total('drove')} of the {run} tests that were run")
    known = [v for module in report.modules for v in module.verdicts if v.category in ("expected", "as stock")]
    skipped = report.total("skipped") + sum(verdict.result.status == "skip" for verdict in known)
    passed = report.total("passed") + len(known) - (skipped - report.total("skipped"))
    print(f"{wrong or 'none'} unexpected; {len(known)} known not to pass, counted as passed or skipped here:")
    print(f"compat: {passed} passed, {wrong + len(report.foreign())} failed, {skipped} skipped")


def write_json(report: Report, path: Path) -> None:
    """Everything, for programs."""
    data: dict[str, Any] = {
        "python": report.python.full,
        "loop": report.loop,
        "loop_version": report.python.loop,
        "status": report.status(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "entries": {
            verdict.entry.id: {"kind": verdict.entry.kind, "reason": verdict.entry.reason, "link": verdict.entry.link}
            for module in report.modules
            for verdict in module.verdicts
            if verdict.entry is not None
        },
        "totals": {column: report.total(column) for column in COLUMNS},
        "injection_failed": report.foreign(),
        "stale": [dataclasses.asdict(entry) for entry in report.stale],
        "findings": report.findings,
        "modules": {
            module.run.name: {
                "seconds": round(module.run.seconds, 2),
                "restarts": module.run.restarts,
                "skipped": module.run.skipped,
                "counts": {column: module.count(column) for column in COLUMNS},
                "tests": {
                    verdict.test: {
                        **dataclasses.asdict(verdict.result),
                        "category": verdict.category,
                        "why": verdict.why,
                        "entry": verdict.entry.id if verdict.entry else None,
                    }
                    for verdict in module.verdicts
                },
            }
            for module in report.modules
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
