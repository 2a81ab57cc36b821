# SPDX-License-Identifier: MIT
"""A pytest plugin that writes a line of JSON before and after each test: its outcome, and whether the loop drove it.

Loaded by tools/dev's runner with `-p suites_pytest`. What ends the process, or hangs in it, costs the test it was at
and no more: the runner starts anew with the tests that are left. It must not change what a test does.
"""

from __future__ import annotations

import faulthandler
import fnmatch
import json
import os
import sys
import time
from collections.abc import Generator
from typing import Any

import pytest
import suites_loop
from suites_loop import Count

SEVERITY = ("skipped", "xfailed", "passed", "failed", "error")
"""Outcomes, each outdone by those after it: a test that passes and whose teardown fails is an error."""

JOB_VARIABLE = "UVPY_SUITES_JOB"
"""The file that says what to do: where results go, what was done already, how long a test may take."""


def matches(part: str, test: str) -> bool:
    """Whether a recipe's `tests`, a part of an id or a glob in which only * is special, means this test."""
    return part in test or fnmatch.fnmatchcase(test, "*" + part.replace("[", "[[]") + "*")


class Recorder:
    """Follows the tests of one process."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._owner = os.getpid()
        self._out = os.open(job["results"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._done = set(job["done"])
        self._left_out: list[str] = job["left_out"]
        self._limit: float = job["limit"]
        # A descriptor of its own: pytest's capturing puts files in the place of stderr.
        self._stderr = os.fdopen(os.dup(2), "w", closefd=False)
        self._outcome = ""
        self._message = ""

    def emit(self, **fields: Any) -> None:
        # Never from a forked child that came back into the runner.
        if os.getpid() == self._owner:
            os.write(self._out, (json.dumps(fields) + "\n").encode())

    def arm(self) -> None:
        """For hangs that nothing else ends, be they in C: all threads' tracebacks, and the process is gone."""
        if self._limit:
            faulthandler.dump_traceback_later(self._limit, exit=True, file=self._stderr)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        gone = [item for item in items if any(matches(part, item.nodeid) for part in self._left_out)]
        done = [item for item in items if item.nodeid in self._done]
        if gone or done:
            config.hook.pytest_deselected(items=gone + done)
            dropped = {id(item) for item in gone + done}
            items[:] = [item for item in items if id(item) not in dropped]
        self.emit(collected=len(items), left_out=len(gone), injected=suites_loop.injected)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.emit(id=report.nodeid or "<collection>", outcome="error", message=report.longreprtext[-4000:])

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        self.emit(start=item.nodeid)
        self._outcome, self._message = "", ""
        others, runs, running = len(suites_loop.foreign), Count.started, Count.running
        self.arm()
        begin = time.monotonic()
        yield
        self.emit(
            id=item.nodeid,
            outcome=self._outcome or "error",
            message=self._message if self._outcome else "the test ended without an outcome",
            seconds=round(time.monotonic() - begin, 3),
            drove=Count.started > runs or running > 0,
            foreign=sorted(set(suites_loop.foreign[others:])),
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "passed"
        elif report.failed and report.when != "call":
            outcome = "error"
        if report.passed and report.when != "call":
            return
        if not self._outcome or SEVERITY.index(outcome) > SEVERITY.index(self._outcome):
            self._outcome = outcome
            self._message = "" if report.passed else _text(report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.emit(finished=int(exitstatus))

    def pytest_unconfigure(self) -> None:
        # What is left is the interpreter's end, which may neither hang nor crash.
        self.arm()


def _text(report: pytest.TestReport) -> str:
    """The end of a failure's text, or a skip's reason."""
    if report.skipped:
        return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
    return report.longreprtext[-6000:]


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.pop(JOB_VARIABLE, None)
    if path is None:  # pytest within a test, or in a child
        return
    if "suites_loop" not in sys.modules or not suites_loop.__file__:
        raise pytest.UsageError("the loop was not injected")
    with open(path, encoding="utf-8") as file:
        config.pluginmanager.register(Recorder(json.load(file)), "uvpy-suites")
