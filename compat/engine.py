# SPDX-License-Identifier: MIT
"""Runs modules of tests in processes of their own and collects what child.py writes.

A process that hangs or dies costs the test it was at; it is started again for the tests that are left.
What the results mean is not known here: report.py judges them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from interpreters import Interpreter, clean_environment

HERE = Path(__file__).resolve().parent
EXTRAS = {"test_runners_uvpy": HERE / "extra_runners.py"}
"""Modules of ours that run beside CPython's, by name."""

TEST_LIMIT = 15.0
SLOW_TEST_LIMIT = 60.0
SLOW_MODULES = {"test_ssl", "test_tasks", "test_subprocess"}
PROCESS_LIMIT = 300.0
MARKER = "@@compat test "
INTERRUPTED = 70
"""Exit status of a process in which an exit or interrupt went through unittest."""

# Seconds they take with stock asyncio, roughly, as negative numbers; only the order matters.
_LONG = {
    "test_subprocess": -25,
    "test_tasks": -20,
    "test_events": -15,
    "test_ssl": -13,
    "test_taskgroups": -6,
    "test_sslproto": -5,
}

_FINDING = re.compile(
    r"Exception ignored|: ResourceWarning: (?!Enable tracemalloc)|Task was destroyed"
    r"|never awaited|never retrieved|Fatal Python error|uvpy: "
)


@dataclasses.dataclass
class TestResult:
    """One test: its worst status, and how often it made and ran the injected loop."""

    status: str
    message: str = ""
    seconds: float = 0.0
    made: int = 0
    ran: int = 0


@dataclasses.dataclass
class ModuleRun:
    """All that running one module gave, before any judgement."""

    name: str
    loaded: list[str] = dataclasses.field(default_factory=list)
    results: dict[str, TestResult] = dataclasses.field(default_factory=dict)
    skipped: str = ""
    restarts: int = 0
    seconds: float = 0.0
    complete: bool = True
    findings: list[tuple[str, str]] = dataclasses.field(default_factory=list)


class Engine:
    """Runs modules of one Python on one loop."""

    def __init__(
        self, python: Interpreter, loop: str, *, rules: list[tuple[str, bool]], patience: float, logs: Path
    ) -> None:
        self.python = python
        self.loop = loop
        self.rules = rules
        self.patience = patience
        self.logs = logs
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False
        logs.mkdir(parents=True, exist_ok=True)

    def run(self, chosen: dict[str, list[str]], jobs: int, tell: Callable[[ModuleRun], None]) -> list[ModuleRun]:
        """Run modules, `jobs` at a time; `tell` of each as it ends. `chosen`: module -> globs (none: all)."""
        # The long ones first, so that none of them is left to run alone at the end.
        order = sorted(chosen, key=lambda name: (name not in _LONG, _LONG.get(name, 0), name))
        done: dict[str, ModuleRun] = {}

        def one(name: str) -> None:
            done[name] = self.run_module(name, chosen[name])
            tell(done[name])

        pool = ThreadPoolExecutor(jobs)
        try:
            for future in [pool.submit(one, name) for name in order]:
                future.result()
        except BaseException:
            self.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return [done[name] for name in chosen]

    def stop(self) -> None:
        """End the processes that run, when we are interrupted."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    def run_module(self, name: str, only: list[str], *, list_only: bool = False) -> ModuleRun:
        """Run one module to its end, in as many processes as it takes."""
        run = ModuleRun(name, complete=not only)
        begin = time.monotonic()
        log = self.logs / f"{name}.log"
        log.unlink(missing_ok=True)
        limit = (SLOW_TEST_LIMIT if name in SLOW_MODULES else TEST_LIMIT) * self.patience
        while not self._stopped:
            before = len(run.results)
            finished = self._process(run, only, limit, log, list_only)
            if finished:
                break
            run.restarts += 1
            if len(run.results) == before:
                run.results[f"{name}.<run>"] = TestResult("crash", f"no test was reached; see {log}")
                break
        if not list_only and log.exists():
            dead = {test for test, result in run.results.items() if result.status in ("crash", "timeout")}
            run.findings = [(test, line) for test, line in _findings(log) if test not in dead]
        run.seconds = time.monotonic() - begin
        return run

    def _process(self, run: ModuleRun, only: list[str], limit: float, log: Path, list_only: bool) -> bool:
        """One process. True when the module is through, False when it must go on in another."""
        with tempfile.TemporaryDirectory(prefix="compat-", ignore_cleanup_errors=True) as scratch:
            results = os.path.join(scratch, "results")
            job = os.path.join(scratch, "job")
            work = os.path.join(scratch, "cwd")
            os.mkdir(work)
            with open(job, "w", encoding="utf-8") as file:
                json.dump(
                    {
                        "module": run.name,
                        "path": str(EXTRAS.get(run.name, "")),
                        "results": results,
                        "limit": limit,
                        "marker": MARKER,
                        "interrupted": INTERRUPTED,
                        "only": only,
                        "rules": self.rules,
                        "done": list(run.results),
                        "list_only": list_only,
                    },
                    file,
                )
            code = self._spawn(job, work, log)
            with contextlib.suppress(FileNotFoundError), open(results, encoding="utf-8") as file:
                return _take(run, file.read().splitlines(), code, log)
        message = f"the process ended before any test: {_end(code)}\n{_tail(log)}"
        run.results[f"{run.name}.<run>"] = TestResult("error", message)
        return True

    def _spawn(self, job: str, work: str, log: Path) -> int:
        """Run child.py in a session of its own; nothing it started outlives it."""
        environment = clean_environment() | {"UVPY_COMPAT_LOOP": self.loop, "TMPDIR": work}
        with open(log, "ab") as errors:
            with self._lock:
                if self._stopped:
                    return -signal.SIGKILL
                process = subprocess.Popen(
                    [self.python.path, str(HERE / "child.py"), job],
                    cwd=work,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    start_new_session=True,
                )
                self._running.add(process)
            if not _ends_within(process, PROCESS_LIMIT * self.patience):
                errors.write(b"Timeout of the whole process\n")
            with self._lock:
                _kill(process)
                process.wait()
                self._running.discard(process)
        return process.returncode


def _ends_within(process: subprocess.Popen[bytes], limit: float) -> bool:
    # Without reaping it: as long as the leader is not reaped, its number can mean no other process group.
    deadline = time.monotonic() + limit
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The whole group: children may have outlived their parent.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(code: int) -> str:
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit status {code}"


def _take(run: ModuleRun, lines: list[str], code: int, log: Path) -> bool:
    """Add what one process wrote to `run`; True when the module is through."""
    current = ""
    ended = False
    # A loop may be closed after its test has ended, so what kills the process between tests is about the last.
    for line in lines:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:  # cut off by the end of the process
            continue
        if "skipped_module" in event:
            run.skipped = event["skipped_module"]
            return True
        if "loaded" in event:
            run.loaded = event["loaded"]
        elif "start" in event:
            current = event["start"]
        elif "id" in event:
            test = event.pop("id")
            run.results[test] = TestResult(**event)
            current = test
        elif "end" in event:
            ended = True
    if ended and code == 0:
        return True
    what = "error" if code == INTERRUPTED else "timeout" if _timed_out(log) else "crash"
    victim = f"{run.name}.<exit>" if ended else current
    if victim:
        before = run.results.get(victim, TestResult("pass"))
        message = f"{_end(code)}\n{_tail(log)}"
        if what != before.status:
            run.results[victim] = dataclasses.replace(before, status=what, message=message)
    return ended


def _tail(log: Path) -> str:
    """What the last process wrote after its last test began."""
    return log.read_text(encoding="utf-8", errors="replace").rpartition(MARKER)[2][-6000:]


def _timed_out(log: Path) -> bool:
    # The first is faulthandler's text, the second ours.
    return re.search(r"^Timeout (\(\d|of the whole process)", _tail(log), re.MULTILINE) is not None


def _findings(log: Path) -> list[tuple[str, str]]:
    """(test, line) for each line of stderr that tells of something left over."""
    found = []
    test = ""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(MARKER):
            test = line[len(MARKER) :]
        elif _FINDING.search(line):
            found.append((test, line.strip()[:300]))
    return found
