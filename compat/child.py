# SPDX-License-Identifier: MIT
"""Runs one module of CPython's test_asyncio in this process, on a loop put in the place of asyncio's own.

Started by engine.py, one process a module, with the name of a job file as its only argument. It writes one
line of JSON before and after each test, so that whatever ends this process costs one test and no more.

What stands above the `__main__` guard runs a second time wherever multiprocessing spawns a child: such a
child re-imports its parent's main module. It gets the same loop by that, but must not run the tests again.
Only the standard library, and nothing of this folder: a spawned child has no path to it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
from typing import Any, cast

LOOP_VARIABLE = "UVPY_COMPAT_LOOP"
"""Environment variable naming the loop; inherited by spawned children, unlike arguments."""


class Count:
    """How often the injected loop was made and run; what a test adds says whether it drove the loop."""

    made = 0
    ran = 0


def loop_base(name: str) -> type:
    """The loop class behind a name of `--loop`. Before anything is patched: uvpy borrows from asyncio."""
    if name == "asyncio":
        return asyncio.SelectorEventLoop
    return cast("type", importlib.import_module(name).Loop)


def compat_class(base: type) -> type:
    """A subclass that counts, and that takes asyncio's `selector` argument also where the base has none."""
    own_selector = base is asyncio.SelectorEventLoop

    class CompatLoop(base):  # type: ignore[misc]
        if not issubclass(base, asyncio.BaseEventLoop):
            # The tests' own tearDown reads it from the instance, from loops of any kind.
            _default_executor = None

        def __new__(cls, selector: Any = None) -> Any:
            return super().__new__(cls)

        def __init__(self, selector: Any = None) -> None:
            Count.made += 1
            if own_selector:
                super().__init__(selector)
                return
            if selector is not None:
                selector.close()
            super().__init__()

        def run_forever(self) -> None:
            Count.ran += 1
            super().run_forever()

    return CompatLoop


def inject(name: str) -> None:
    """Make every way in which tests come by a loop lead to ours, and leave asyncio's internal classes alone.

    The factory is set on the policy class, not on a policy: each module's tearDownModule resets the policy,
    and some tests make policies of their own. It must be a class: a plain function would become a method.
    """
    loop = compat_class(loop_base(name))
    unix = asyncio.unix_events
    unix._UnixDefaultEventLoopPolicy._loop_factory = loop  # type: ignore[attr-defined]
    for module in (asyncio, unix):
        for attribute in ("SelectorEventLoop", "EventLoop"):
            if hasattr(module, attribute):
                setattr(module, attribute, loop)


if os.environ.get(LOOP_VARIABLE):
    inject(os.environ[LOOP_VARIABLE])


def main(job_file: str) -> None:
    """Run the job: load the module, leave out what is deselected or already judged, run the rest."""
    # Imported here so that a spawned child pays for the injection only.
    import faulthandler
    import fnmatch
    import json
    import signal
    import time
    import traceback
    import unittest
    import warnings

    with open(job_file, encoding="utf-8") as file:
        job: dict[str, Any] = json.load(file)
    module: str = job["module"]
    limit: float = job["limit"]
    owner = os.getpid()
    out = os.open(job["results"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def emit(**fields: Any) -> None:
        # Unbuffered, and never from a forked child that came back into the runner.
        if os.getpid() == owner:
            os.write(out, (json.dumps(fields) + "\n").encode())

    def test_id(test: Any) -> str:
        if type(test).__name__ == "_ErrorHolder":  # a failing setUpClass, tearDownClass, setUpModule, ...
            return f"{module}.<{test.id()}>"
        return f"{module}.{type(test).__qualname__}.{test._testMethodName}"

    class Recorder(unittest.TestResult):
        """Writes each test's worst outcome as soon as the test has ended."""

        severity = ("pass", "skip", "fail", "error")
        current = ""
        outcome = ""
        message = ""
        started = 0.0
        made = 0
        ran = 0

        def startTest(self, test: Any) -> None:
            super().startTest(test)
            self.current, self.outcome, self.message = test_id(test), "", ""
            self.made, self.ran = Count.made, Count.ran
            emit(start=self.current)
            os.write(2, f"{job['marker']}{self.current}\n".encode())
            faulthandler.dump_traceback_later(limit, exit=True)
            self.started = time.monotonic()

        def stopTest(self, test: Any) -> None:
            # Not over yet: IsolatedAsyncioTestCase closes its loop after this.
            faulthandler.dump_traceback_later(limit, exit=True)
            super().stopTest(test)
            if not self.current:  # 3.12.1 stops tests that it skips without starting them
                return
            # No outcome: KeyboardInterrupt or SystemExit went through unittest and is about to end the run.
            emit(
                id=self.current,
                status=self.outcome or "error",
                message=self.message if self.outcome else "the test ended without an outcome (an exit or interrupt)",
                seconds=round(time.monotonic() - self.started, 3),
                made=Count.made - self.made,
                ran=Count.ran - self.ran,
            )
            self.current = ""

        def note(self, test: Any, outcome: str, message: str) -> None:
            if not self.current:
                emit(id=test_id(test), status=outcome, message=message, seconds=0.0, made=0, ran=0)
            elif not self.outcome or self.severity.index(outcome) > self.severity.index(self.outcome):
                self.outcome, self.message = outcome, message

        def addSuccess(self, test: Any) -> None:
            self.note(test, "pass", "")

        def addExpectedFailure(self, test: Any, err: Any) -> None:
            self.note(test, "pass", "")

        def addUnexpectedSuccess(self, test: Any) -> None:
            self.note(test, "fail", "unexpected success")

        def addSkip(self, test: Any, reason: str) -> None:
            self.note(test, "skip", reason)

        def addFailure(self, test: Any, err: Any) -> None:
            self.note(test, "fail", text_of(err))

        def addError(self, test: Any, err: Any) -> None:
            self.note(test, "error", text_of(err))

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            if err is not None:
                failed = issubclass(err[0], test.failureException)
                self.note(test, "fail" if failed else "error", f"{subtest._subDescription()}\n{text_of(err)}")

    def text_of(err: Any) -> str:
        return "".join(traceback.format_exception(*err))[-6000:]

    def load() -> unittest.TestSuite:
        if job["path"]:
            spec = importlib.util.spec_from_file_location(module, job["path"])
            assert spec is not None
            assert spec.loader is not None
            extra = importlib.util.module_from_spec(spec)
            sys.modules[module] = extra
            spec.loader.exec_module(extra)
            return unittest.defaultTestLoader.loadTestsFromModule(extra)
        return unittest.defaultTestLoader.loadTestsFromName(f"test.test_asyncio.{module}")

    def flat(suite: Any) -> list[Any]:
        if isinstance(suite, unittest.TestSuite):
            return [test for part in suite for test in flat(part)]
        return [suite]

    def wanted(name: str) -> bool:
        if job["only"] and not any(fnmatch.fnmatchcase(name, glob) for glob in job["only"]):
            return False
        # The first rule that matches decides, as in expectations.py.
        return next((keep for glob, keep in job["rules"] if fnmatch.fnmatchcase(name, glob)), True)

    sys.argv[1:] = []
    del sys.path[0]  # this folder: the tests must not find its modules
    # A job in the background inherits SIGINT as ignored; the tests count on Python's own handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable()
    try:
        tests = flat(load())
    except unittest.SkipTest as skip:
        emit(skipped_module=str(skip))
        return
    emit(loaded=[test_id(test) for test in tests])
    done = set(job["done"])
    suite = unittest.TestSuite(test for test in tests if wanted(test_id(test)) and test_id(test) not in done)
    del tests  # the suite lets go of each test after its run, and with it of the test's loop
    if not job["list_only"]:
        recorder = Recorder()
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # as unittest's own runner does
            try:
                suite.run(recorder)
            except BaseException:
                # The engine makes it the outcome of the test that was on, and starts again for those left.
                traceback.print_exc()
                os._exit(job["interrupted"])
    emit(end=True)
    os.write(2, f"{job['marker']}{module}.<exit>\n".encode())
    # What is left is the interpreter's end, where a loop's last objects die: it may neither hang nor crash.
    faulthandler.dump_traceback_later(limit, exit=True)


if __name__ == "__main__":
    main(sys.argv[1])
