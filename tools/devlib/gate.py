"""`tools/dev test`, what CI runs: all that must hold, with pytest last so that its closing line closes."""

from __future__ import annotations

import os
from pathlib import Path

from . import builds, lint
from .builds import Env
from .steps import ROOT, Command, Failure, answer, show, step

BEHAVIOUR = ROOT.parent / "shared" / "behaviour" / "run.py"
BEHAVIOUR_FILES = (
    *("sched", "handles", "lifecycle", "errors", "context", "tasks", "threads"),
    *("signals", "debug", "watch", "tcp", "server", "connect", "streams"),
)
COMPAT_HAS_NO_TESTS = 77


def everything(env: Env) -> int:
    env.install("build", "test", "lint", "demo")
    for variant in (builds.MAIN, builds.CHECKS, builds.STATIC):
        env.build(variant)
    failed = [f"lint ({', '.join(found)})"] if (found := lint.everything(env)) else []
    failed += [name for name, part in PARTS.items() if not part(env)]

    step("pytest, on the build with assertions and self-checks")
    if failed:
        print(f"FAILED before pytest: {'; '.join(failed)}", flush=True)
    status = show([env.bin / "pytest"], env=env.environment(builds.CHECKS), limit=1800)
    return 1 if failed or status else 0


def static_libuv(env: Env) -> bool:
    step("static libuv: what the module exports, and a first run")
    folders = [path for path in ("tests/test_build.py", "tests/smoke") if (ROOT / path).exists()]
    extra = {**env.environment(builds.STATIC), "UVPY_EXPECT_LIBUV": "bundled"}
    return show([env.bin / "pytest", "-q", "-m", "not slow", *folders], env=extra, limit=600) == 0


def compat_slice(env: Env) -> bool:
    step("compat: a slice of CPython's own test_asyncio")
    command: Command = [env.python, ROOT / "compat" / "run.py", "--python", env.python, "--slice"]
    status = show(command, env=env.environment(), limit=900)
    if status == COMPAT_HAS_NO_TESTS:
        print(f"skipped: this Python ({env.base.path}) came without its own tests", flush=True)
        return True
    return status == 0


def behaviour_command(env: Env, *rest: str) -> Command:
    return [env.python, BEHAVIOUR, "--loop", "uvpy", "--python", str(env.python), *rest]


def behaviours(env: Env) -> bool:
    if not BEHAVIOUR.exists():
        step("behaviours: skipped, ../shared/behaviour is not there")
        return True
    step("behaviours of stock asyncio")
    only = [part for name in BEHAVIOUR_FILES for part in ("--only", f"{name}.*")]
    return show(behaviour_command(env, *only), env=env.environment(), limit=900) == 0


PARTS = {"static libuv": static_libuv, "compat slice": compat_slice, "behaviours": behaviours}


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
