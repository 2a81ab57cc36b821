"""`tools/dev test`, what CI runs: all that must hold, with pytest last so that its closing line closes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from . import builds, lint, pythons, suites
from .builds import Env
from .machine import install_packages, may_install
from .outcomes import STOCK
from .steps import ROOT, Command, Failure, answer, show, step

BEHAVIOUR = ROOT.parent / "shared" / "behaviour" / "run.py"
COMPAT_HAS_NO_TESTS = 77
BENCH = ROOT / "tools" / "bench"
COUNTED = ("call_soon_burst", "call_soon_chain", "call_later_cancel", "task_spawn", "sock_pair", "tcp_echo")
"""Whose instructions are compared with the stored ones: few, for they take some five seconds each."""


def everything(env: Env, others: Sequence[Env] = (), elsewhere: Sequence[str] = ()) -> int:
    """All of it on one Python; on others, and on those that pythons.py has set up, what concerns the Python."""
    env.install("build", "test", "lint", "demo")
    for variant in (builds.MAIN, builds.CHECKS, builds.STATIC):
        env.build(variant)
    failed = [f"lint ({', '.join(found)})"] if (found := lint.everything(env)) else []
    for other in others:
        failed += [f"{part} on {other.key}" for part in brief(other)]
    for minor in elsewhere:
        if show(pythons.command(minor, ["test", "--brief", "--python", minor]), limit=3600) != 0:
            failed.append(f"Python {minor}")
    parts = (static_libuv, instructions, compat, suites_slice, behaviours)
    failed += [part.__name__ for part in parts if not part(env)]
    if failed:
        step(f"FAILED before the last pytest: {'; '.join(failed)}")
    return 0 if pytest(env) and not failed else 1


def brief(env: Env) -> list[str]:
    """What concerns the Python alone; the parts that failed."""
    env.install("build", "test").build(builds.MAIN).build(builds.CHECKS)
    return [part.__name__ for part in (compat_slice, behaviours, pytest) if not part(env)]


def pytest(env: Env) -> bool:
    step(f"pytest on Python {env.key}, with assertions and self-checks")
    return show([env.bin / "pytest"], env=env.environment(builds.CHECKS), limit=1800) == 0


def static_libuv(env: Env) -> bool:
    step(f"static libuv on Python {env.key}: what the module exports, a first run, and guests of a libuv nobody sees")
    paths = ("tests/test_build.py", "tests/smoke", "tests/core/test_guest.py", "tests/core/test_guest_ends.py")
    folders = [path for path in paths if (ROOT / path).exists()]
    extra = {**env.environment(builds.STATIC), "UVPY_EXPECT_LIBUV": "bundled"}
    return show([env.bin / "pytest", "-q", "-m", "not slow", *folders], env=extra, limit=600) == 0


def instructions(env: Env) -> bool:
    """Compared on the interpreter of the baseline alone: another's counts say nothing about ours."""
    known = json.loads((BENCH / "baseline.json").read_text())
    if f"CPython {env.base.version}" not in known:
        step(f"instructions: skipped, the baseline is of {', '.join(known)}, this is {env.base.version}")
        return True
    if shutil.which("valgrind") is None:
        if not may_install():
            step("instructions: skipped, valgrind is not installed")
            return True
        install_packages("valgrind", ["valgrind"])
    step(f"instructions an operation, beside the baseline of Python {env.key}")
    command: Command = [env.python, BENCH / "run.py", "--callgrind", "--check", "--only", ",".join(COUNTED)]
    return show(command, env=env.environment(), limit=600) == 0


def compat(env: Env, *options: str) -> bool:
    step(f"compat: CPython's own test_asyncio, {' '.join(options) or 'whole'}, {env.key}")
    command: Command = [env.python, ROOT / "compat" / "run.py", "--python", env.python, *options]
    status = show(command, env=env.environment(), limit=900)
    if status != COMPAT_HAS_NO_TESTS:
        return status == 0
    package = f"libpython{env.base.minor}-testsuite"
    if env.base.path.is_relative_to("/usr/bin") and may_install() and answer(["dpkg", "-s", package]) is None:
        # Debian has a Python's own tests in a package of their own.
        install_packages(f"the tests of {env.base.path}", [package])
        return compat(env, *options)
    print(f"skipped: this Python ({env.base.path}) came without its own tests", flush=True)
    return True


def compat_slice(env: Env) -> bool:
    return compat(env, "--slice")


def suites_slice(env: Env) -> bool:
    step(f"slices of other people's suites on asyncio and uvpy, {env.key}")
    return suites.run([], suites.Options((STOCK, "uvpy"), 1, None, str(env.base.path), slice=True)) == 0


def behaviour_command(env: Env, *rest: str) -> Command:
    return [env.python, BEHAVIOUR, "--loop", "uvpy", "--python", str(env.python), *rest]


def behaviours(env: Env) -> bool:
    if not BEHAVIOUR.exists():
        step("behaviours: skipped, ../shared/behaviour is not there")
        return True
    step(f"behaviours of stock asyncio on Python {env.key}")
    return show(behaviour_command(env), env=env.environment(), limit=900) == 0


def sanitized(env: Env, arguments: list[str]) -> int:
    """pytest under AddressSanitizer and UBSan. Python itself is not built for it, so leaks are not counted."""
    env.install("build", "test").build(builds.SANITIZED)
    compiler = os.environ.get("CXX", "c++").split()[0]
    library = answer([compiler, "-print-file-name=libasan.so"])
    if not library or not Path(library).is_absolute():
        raise Failure(f"{compiler} has no libasan.so; tools/dev sanitize needs GCC with its sanitizers")
    extra = {
        **env.environment(builds.SANITIZED),
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    return show([env.bin / "pytest", "-m", "not slow", *arguments], env=extra)
