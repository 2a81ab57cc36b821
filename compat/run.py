#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs CPython's own test.test_asyncio against a loop: `compat/run.py --help`, and README.md in this folder.

Exit status: 0 as expected; 1 unexpected results; 2 wrong usage or a bad expected.toml; 3 the loop was never
made in a module that makes one; 4 the loop cannot be imported; 77 this Python has no test_asyncio (CI may go
on).
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

import interpreters
from engine import EXTRAS, Engine, ModuleRun
from expectations import BadExpectations, Expectations
from records import Stock, save
from report import judge, print_report, write_json

HERE = Path(__file__).resolve().parent
NO_TESTS = 77

SLICE = (
    "test_base_events",
    "test_buffered_proto",
    "test_context",
    "test_eager_task_factory",
    "test_events",
    "test_futures2",
    "test_locks",
    "test_queues",
    "test_runners_uvpy",
    "test_sendfile",
    "test_server",
    "test_server_context",
    "test_sock_lowlevel",
    "test_sslproto",
    "test_staggered",
    "test_streams",
    "test_threads",
    "test_timeouts",
    "test_unix_events",
    "test_waitfor",
)
"""What CI runs: a quarter of a minute on two cores; the modules that say most about a loop and take little time."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run CPython's own asyncio tests against a loop.")
    parser.add_argument("only", nargs="*", metavar="module", help="a module, or a glob such as 'test_events.Select*'")
    parser.add_argument("--python", default=interpreters.default_python(), help="a path, or a version such as 3.12")
    parser.add_argument("--loop", choices=("uvpy", "asyncio", "uvloop"), default="uvpy")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time (2)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where results go (whole runs: .work/compat/results)")
    parser.add_argument("--slice", action="store_true", help="a short choice of modules, for CI")
    parser.add_argument("--list", action="store_true", help="only list the modules; the tests of those that are named")
    parser.add_argument("--compare", action="store_true", help="run stock asyncio first instead of using its record")
    parser.add_argument("--record", action="store_true", help="with --loop asyncio: write its record, stock/*.json")
    parser.add_argument("--patience", type=float, default=1.0, help="factor on all time limits, for slow builds")
    parser.add_argument("--logs", type=Path, help="folder for what the tests print (.work/compat/...)")
    return parser.parse_args()


def refuse(why: str) -> NoReturn:
    """End the program over something that the user has to put right."""
    print(f"compat: {why}", file=sys.stderr)
    sys.exit(2)


def choose(modules: list[str], options: argparse.Namespace) -> dict[str, list[str]]:
    """Module -> globs of the tests to run, none for all; ends the program on a name that does not exist."""
    named: list[str] = options.only
    if not named:
        return {name: [] for name in modules if not options.slice or name in SLICE}
    chosen: dict[str, list[str]] = {}
    for text in named:
        module, dot, _ = text.removesuffix(".py").partition(".")
        if module not in modules:
            refuse(f"no module {module} in this Python's test_asyncio (see --list)")
        if dot:
            chosen.setdefault(module, []).extend((text, f"{text}.*"))
        else:
            chosen[module] = []
    return chosen


def show_list(engine: Engine, modules: list[str], options: argparse.Namespace) -> int:
    """`--list`."""
    for name, only in choose(modules, options).items():
        if not options.only:
            print(name + ("  (slice)" if name in SLICE else "") + ("  (ours)" if name in EXTRAS else ""))
            continue
        for test in engine.run_module(name, only, list_only=True).loaded:
            print(test)
    return 0


def progress(run: ModuleRun) -> None:
    """One line as a module ends."""
    bad = sum(result.status not in ("pass", "skip") for result in run.results.values())
    print(
        f"  {run.name}: {len(run.results)} tests, {bad} not passed, {run.seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """The program; returns its exit status."""
    options = arguments()
    if options.record and (options.loop != "asyncio" or options.only or options.slice):
        refuse("--record is for a whole run with --loop asyncio")
    python = interpreters.find(options.python, options.loop)
    if python is None:
        refuse(f"no Python {options.python} was found that runs")
    if not python.modules:
        print(f"compat: {python.path} ({python.full}) comes without Lib/test/test_asyncio: nothing was tested.")
        print("A Python built from source has it (pyenv, python.org); on Debian and Ubuntu it is the package")
        print(f"libpython{python.minor}-testsuite.")
        return NO_TESTS
    if python.missing:
        print(f"compat: {python.path} ({python.full}) cannot import {options.loop}: {python.missing}")
        return 4
    try:
        path = HERE / "expected.toml"
        expectations = Expectations.load(path, python.version) if options.loop == "uvpy" else Expectations([], (0,))
    except BadExpectations as exc:
        refuse(str(exc))

    modules = sorted([*python.modules, *EXTRAS])
    chosen = choose(modules, options)
    logs = options.logs or interpreters.REPOSITORY / ".work" / "compat" / f"{options.loop}-{python.full}"
    engine = Engine(python, options.loop, rules=expectations.rules(), patience=options.patience, logs=logs)
    if options.list:
        return show_list(engine, modules, options)

    stock = Stock.load(python.minor)
    if options.compare and options.loop != "asyncio":
        print(f"stock asyncio on Python {python.full}:", file=sys.stderr)
        other = Engine(python, "asyncio", rules=expectations.rules(), patience=options.patience, logs=logs / "stock")
        stock = Stock.of(python.full, other.run(chosen, options.jobs, progress))
    print(f"{options.loop} {python.loop} on Python {python.full} ({python.path}):", file=sys.stderr)
    runs = engine.run(chosen, options.jobs, progress)
    if options.record:
        print(f"wrote {save(python.minor, python.full, runs)}")
        stock = Stock.load(python.minor)
    whole = set(chosen) == set(modules) and not any(chosen.values())
    report = judge(python, options.loop, runs, expectations, stock, whole)
    print_report(report, logs)
    kept = interpreters.REPOSITORY / ".work" / "compat" / "results" / f"{options.loop}-{python.full}.json"
    if options.json or whole:
        write_json(report, options.json or kept)
    return report.status()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the processes we started end with us
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
