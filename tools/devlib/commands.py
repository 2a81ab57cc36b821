"""The subcommands of tools/dev: what each takes and what it calls."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable

from . import builds, cluster, demo, fresh, gate, lint, mutants, pythons, reports, suites
from .builds import Env, Variant
from .machine import supported_pythons
from .steps import ROOT, WORK, Failure, locked, relative, remove_tree, show, step

Args = argparse.Namespace


def setup(args: Args) -> int:
    env = Env.of(args.python).install("build", "test", "lint", "demo")
    step(f"ready: {relative(env.python)}")
    return 0


def build(args: Args) -> int:
    env = Env.of(args.python)
    for variant in _variants(args):
        env.build(variant)
        step(f"built {variant.name} for Python {env.key}: UVPY_SITE={relative(env.site(variant))}")
    step(f"{relative(env.python)} imports the main build; with UVPY_SITE, another")
    return 0


def _variants(args: Args) -> list[Variant]:
    chosen = []
    if args.static_libuv:
        chosen.append(builds.STATIC)
    if args.checks:
        chosen.append(builds.CHECKS)
    if args.sanitize:
        chosen.append(builds.SANITIZED)
    if args.mutant:
        chosen.append(builds.mutant(args.mutant))
    return chosen or [builds.MAIN]


def run(args: Args) -> int:
    variant = builds.VARIANTS[args.variant]
    env = Env.of(args.python).build(variant)
    return show([env.python, *args.rest], env=env.environment(variant))


def test(args: Args) -> int:
    env = Env.of(args.python)
    if args.brief:
        failed = gate.brief(env)
        step(f"FAILED on Python {env.key}: {', '.join(failed)}" if failed else f"all passed on Python {env.key}")
        return 1 if failed else 0
    elsewhere = [minor for minor in pythons.found() if minor != env.base.minor] if args.every_python else []
    here = supported_pythons() if args.every_python else ()
    others = [Env(python) for python in here if python.minor not in (env.base.minor, *elsewhere)]
    return gate.everything(env, others, elsewhere)


def pytest(args: Args) -> int:
    variant = builds.VARIANTS[args.variant]
    env = Env.of(args.python).install("build", "test").build(variant)
    return show([env.bin / "pytest", *args.rest], env=env.environment(variant))


def run_lint(args: Args) -> int:
    env = Env.of(args.python).install("build", "test", "lint").build().build(builds.CHECKS)
    if args.fix:
        lint.fix(env)
    return lint.report(lint.everything(env))


def compat(args: Args) -> int:
    env = Env.of(args.python).build()
    return show([env.python, ROOT / "compat" / "run.py", "--python", env.python, *args.rest], env=env.environment())


def behaviour(args: Args) -> int:
    env = Env.of(args.python).build()
    if not gate.BEHAVIOUR.exists():
        raise Failure(f"there is no {gate.BEHAVIOUR}")
    rest = [*args.rest, "--debug"] if args.debug else args.rest
    return show(gate.behaviour_command(env, *rest), env=env.environment())


def bench(args: Args) -> int:
    env = Env.of(args.python).install("build", "bench").try_install("bench-more").build()
    return show([env.python, ROOT / "tools" / "bench" / "run.py", *args.rest], env=env.environment())


def run_demo(args: Args) -> int:
    env = Env.of(args.python).install("build", "demo").build()
    return demo.run(env, rounds=args.rounds, seconds=args.seconds, connections=args.connections)


def run_mutants(args: Args) -> int:
    return mutants.run(Env.of(args.python), args.names)


def run_suites(args: Args) -> int:
    if args.list:
        return suites.show_list()
    loops = tuple(args.loops.split(","))
    if unknown := [loop for loop in loops if loop not in suites.LOOPS]:
        raise Failure(f"no loop {', '.join(unknown)}; there are {', '.join(suites.LOOPS)}")
    return suites.run(args.names, suites.Options(loops, args.runs, args.only, args.python, args.fetch, args.slice))


def dask(args: Args) -> int:
    return cluster.run(
        Env.of(args.python).install("build", "test", "bench").build(), rounds=args.rounds, tasks=args.tasks
    )


def report(_: Args) -> int:
    return reports.run()


def sanitize(args: Args) -> int:
    return gate.sanitized(Env.of(args.python), args.rest)


def run_python(args: Args) -> int:
    for minor in args.versions:
        pythons.set_up(minor)
    return 0


def run_fresh(args: Args) -> int:
    return fresh.run(args.commands or ["demo", "test"], again=args.again)


def clean(args: Args) -> int:
    with locked("clean"):
        step("remove .work and the fetched sources of libuv")
        for path in [WORK, *(ROOT / "subprojects").glob("libuv-*"), ROOT / "subprojects" / "packagecache"]:
            remove_tree(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/dev",
        description="uvpy's workbench. Everything it makes lies under .work/ (see tools/devlib/builds.py).",
        epilog="--python takes a path, or a version (3.12, 3.12.1) that `tools/dev python` has set up, or that is in "
        "PATH or pyenv.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Callable[[Args], int], line: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=line, description=line, allow_abbrev=False)
        sub.add_argument("--python", metavar="PYTHON", help="the interpreter to work with (default: this one)")
        sub.set_defaults(function=function, rest=None, enters=True)
        return sub

    def rest(sub: argparse.ArgumentParser, what: str) -> None:
        sub.set_defaults(rest=[])
        sub.epilog = f"Further arguments go to {what}."

    def variant(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--variant", choices=list(builds.VARIANTS), default="main", help="the build to use (main)")

    command("setup", setup, "install what is missing (by apt-get as root on Debian) and make the venv")
    sub = command("build", build, "build the extension; quick when little changed")
    sub.add_argument("--static-libuv", action="store_true", help="with libuv built in, static and hidden")
    sub.add_argument("--checks", action="store_true", help="with assertions and self-checks")
    sub.add_argument("--sanitize", action="store_true", help="with AddressSanitizer and UBSan")
    sub.add_argument("--mutant", metavar="NAME", help="with this planted fault")
    sub = command("run", run, "run the venv's python on a build: tools/dev run -c 'import uvpy'")
    variant(sub)
    rest(sub, "python")
    sub = command(
        "test", test, "the gate, as CI runs it: lint, static libuv, compat, slices of suites, behaviours, pytest"
    )
    sub.add_argument("--every-python", action="store_true", help="on the other supported Pythons found here, too")
    sub.add_argument(
        "--brief", action="store_true", help="only what concerns the Python: compat slice, behaviours, pytest"
    )
    sub = command("pytest", pytest, "build and run pytest alone")
    variant(sub)
    rest(sub, "pytest")
    sub = command("lint", run_lint, "clang-format, clang-tidy, layers, ruff, mypy, stubtest, typed use")
    sub.add_argument("--fix", action="store_true", help="first let clang-format and ruff change the files")
    sub = command("compat", compat, "CPython's own test_asyncio against uvpy")
    rest(sub, "compat/run.py")
    sub = command("behaviour", behaviour, "the behaviour probes of ../shared/behaviour against uvpy")
    sub.add_argument("--debug", action="store_true", help="in asyncio's debug mode")
    rest(sub, "its run.py")
    sub = command("bench", bench, "the benchmarks against asyncio, other loops and their floors")
    rest(sub, "tools/bench/run.py")
    sub = command("demo", run_demo, "serve an aiohttp application on asyncio and on uvpy, load it, compare")
    sub.add_argument("--rounds", type=int, default=4, help="rounds for each loop, taken in turn (4)")
    sub.add_argument("--seconds", type=float, default=2.0, help="seconds a round (2)")
    sub.add_argument("--connections", type=int, default=32, help="keep-alive connections (32)")
    sub = command("mutants", run_mutants, "build with one planted fault at a time; the tests must catch each")
    sub.add_argument("names", nargs="*", metavar="NAME", help="only these of tools/mutants.toml")
    sub = command("suites", run_suites, "other people's test suites on asyncio, uvpy and uvloop; compat/suites")
    sub.add_argument("names", nargs="*", metavar="NAME", help="only these (see --list)")
    sub.add_argument("--list", action="store_true", help="list the suites")
    sub.add_argument("--fetch", action="store_true", help="only bring the sources and packages, run nothing")
    sub.add_argument("--runs", type=int, help="not more than these runs a loop, for a quick look (3, uvloop 1)")
    sub.add_argument("--loops", default=",".join(suites.LOOPS), help="only these (asyncio,uvpy,uvloop)")
    sub.add_argument("--slice", action="store_true", help="only what the recipes name for a quick look")
    sub.add_argument("--only", metavar="EXPRESSION", help="pytest's -k: only these tests")
    sub = command("dask", dask, "a Dask scheduler's throughput on asyncio, uvloop and uvpy, for the report")
    sub.add_argument("--rounds", type=int, default=cluster.ROUNDS, help="clusters for each loop, taken in turn (5)")
    sub.add_argument("--tasks", type=int, default=cluster.TASKS, help="tiny tasks a round (4000)")
    command("report", report, "compat/REPORT.md from the results of whole runs of compat, suites and dask")
    sub = command("sanitize", sanitize, "run pytest on a build with AddressSanitizer and UBSan")
    rest(sub, "pytest")
    sub = command("python", run_python, "set up a Python that this machine lacks, as a Debian in a folder (needs root)")
    sub.add_argument("versions", nargs="+", metavar="VERSION", help="3.14, 3.15")
    sub.set_defaults(enters=False)
    sub = command("fresh", run_fresh, "run demo and test on a bare Debian bookworm (debootstrap; needs root)")
    sub.add_argument("--again", action="store_true", help="keep what an earlier run installed there")
    sub.add_argument("commands", nargs="*", metavar="COMMAND", help="tools/dev commands to run there (demo test)")
    sub.set_defaults(enters=False)
    command("clean", clean, "remove all that tools/dev made in this folder").set_defaults(enters=False)
    return parser


def main(argv: list[str]) -> int:
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    if args.rest is None and rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if rest[:1] == ["--"]:
        rest = rest[1:]
    args.rest = rest
    # As after Ctrl-C, what was started is ended before we go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if args.enters and (minor := pythons.named_by(args.python)):
            pythons.enter(minor, argv)
        return int(args.function(args))
    except Failure as failure:
        print("\n".join(f"tools/dev: {line}" for line in str(failure).splitlines()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
