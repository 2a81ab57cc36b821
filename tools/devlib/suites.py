"""`tools/dev suites`: other people's test suites on stock asyncio, uvpy and uvloop, swapped in the same way.

Each suite has a venv, a tree with its tests and nothing else, and the servers it needs. It is run by pytest, one
suite and one loop at a time; compat/suites/inject swaps the loop and writes what each test did. All that is made
lies under .work/suites; the results of whole runs are kept by `tools/dev report`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from . import services
from .builds import MAIN, Env
from .outcomes import STOCK, Comparison, Result, Run, compare, doubts, foreign, gist
from .recipes import FOLDER, RECIPES, SETUP, Recipe, fetch, matches, recipes
from .services import Service
from .steps import LOGS, ROOT, Command, Failure, answer, locked, logged, quiet, relative, step

LOOPS = {STOCK: 3, "uvpy": 3, "uvloop": 1}
"""The loops, and how often each runs a suite."""
UVLOOP = "uvloop==0.23.0"
RUNNER = ("pytest-timeout==2.4.0",)
RESTARTS = 8
RESULT, PART = "result.json", "result-part.json"
"""Of a whole run, which `tools/dev report` takes in; of any other."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What the command line says."""

    loops: tuple[str, ...]
    runs: int | None
    only: str | None
    python: str | None
    fetch: bool = False
    """Only bring sources and packages."""
    slice: bool = False
    """Only the paths that the recipe names for a quick run."""

    def number(self, loop: str) -> int:
        return LOOPS[loop] if self.runs is None else min(self.runs, LOOPS[loop])

    @property
    def whole(self) -> bool:
        return not self.slice and self.only is None and self.runs is None and set(self.loops) == set(LOOPS)


def run(names: list[str], options: Options) -> int:
    known = recipes()
    if options.slice:
        known = {name: recipe for name, recipe in known.items() if recipe.slice}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Failure(f"no such suite: {', '.join(unknown)}; there are {', '.join(known)}")
    failed = []
    for name in names or known:
        with locked(f"suite-{name}"):
            try:
                good = _suite(known[name], options)
            except Failure as failure:
                print(f"{name}: {failure}", flush=True)
                good = False
        if not good:
            failed.append(name)
    wish = "fetched" if options.fetch else "as on stock asyncio"
    step(f"suites: {', '.join(failed)} not {wish}" if failed else f"suites: all {wish}")
    return 1 if failed else 0


def show_list() -> int:
    for recipe in recipes().values():
        print(f"{recipe.name:12} {recipe.version:12} {recipe.what}")
    return 0


def _suite(recipe: Recipe, options: Options) -> bool:
    env = Env.of(options.python or recipe.python)
    if "uvpy" in options.loops:
        env.build(MAIN)
    recipe.folder.mkdir(parents=True, exist_ok=True)
    fetch(recipe, env)
    python = _venv(recipe, env)
    if options.fetch:
        return True
    paths = {STOCK: "", "uvpy": str(env.site(MAIN)), "uvloop": str(_uvloop(env)) if "uvloop" in options.loops else ""}
    runs: list[Run] = []
    with contextlib.ExitStack() as stack:
        served = [stack.enter_context(services.SERVICES[name]()) for name in recipe.services]
        known = _known(recipe, served)
        # In turn, so that a change of the machine's load does not fall on one loop.
        for number in range(1, max(LOOPS.values()) + 1):
            for loop in options.loops:
                if number <= options.number(loop):
                    runs.append(_Runner(recipe, python, loop, number, paths[loop], options).run(known))
    return _judge(recipe, env, python, served, runs, options, paths)


def _known(recipe: Recipe, served: list[Service]) -> dict[str, Any]:
    """What stands for {postgresql.port} and the like in a recipe's arguments and environment."""
    known: dict[str, Any] = {service.name: service for service in served}
    if "{wrappers}" in recipe.environment.values():
        known["wrappers"] = services.postgresql_wrappers(recipe.folder / "postgresql")
    return known


def _venv(recipe: Recipe, env: Env) -> Path:
    """The suite's venv with its packages; made anew when the recipe's list changes."""
    venv = recipe.folder / f"venv-{env.key}"
    python = venv / "bin" / "python"
    wanted = hashlib.sha256(repr((recipe.install, RUNNER)).encode()).hexdigest()
    stamp = venv / "recipe.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    step(f"{recipe.name}: venv with {', '.join(recipe.install[:3])}, ...")
    shutil.rmtree(venv, ignore_errors=True)
    log = f"suite-{recipe.name}"
    quiet([env.base.path, "-m", "venv", venv], log, what="making the venv")
    pip: Command = [python, "-m", "pip", "install", "-q", "--prefer-binary"]
    quiet([*pip, *recipe.install, *RUNNER], log, what="pip install")
    stamp.write_text(wanted)
    return python


def _uvloop(env: Env) -> Path:
    """A folder with uvloop alone: in no suite's venv, so that its presence changes no suite."""
    folder = FOLDER / f"uvloop-{env.key}"
    stamp = folder / "version.txt"
    if not (stamp.exists() and stamp.read_text() == UVLOOP):
        shutil.rmtree(folder, ignore_errors=True)
        pip: Command = [env.python, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, UVLOOP]
        quiet(pip, "suites", what="pip install uvloop")
        stamp.write_text(UVLOOP)
    return folder


class _Runner:
    """Runs a suite once on one loop, in as many processes as it takes."""

    def __init__(self, recipe: Recipe, python: Path, loop: str, number: int, path: str, options: Options) -> None:
        self._recipe, self._python, self._path, self._options = recipe, python, path, options
        self._run = Run(loop, number)
        self._log = LOGS / f"suite-{recipe.name}-{loop}-{number}.log"
        self._job = recipe.folder / "job.json"
        self._results = recipe.folder / "results.jsonl"

    def run(self, known: dict[str, Any]) -> Run:
        run, recipe = self._run, self._recipe
        LOGS.mkdir(parents=True, exist_ok=True)
        self._log.unlink(missing_ok=True)
        begin = time.monotonic()
        for attempt in range(RESTARTS + 1):
            status, current = self._process(known, recipe.limit - (time.monotonic() - begin))
            late = time.monotonic() - begin >= recipe.limit
            if current is not None:
                outcome = "hang" if status in (1, 124) else "crash"
                run.tests[current] = Result(outcome, f"exit status {status}; see {relative(self._log)}")
            elif run.complete and status in (0, 1, 5):
                break
            else:
                outcome = "hang" if status == 124 else "crash"
                name = "<exit>" if run.complete else "<start>"
                run.tests[name] = Result(outcome, f"exit status {status}; see {relative(self._log)}")
                break
            if late:
                run.complete = False
                break
            run.restarts = attempt + 1
        run.seconds = time.monotonic() - begin
        count = run.count()
        step(
            f"{recipe.name} on {run.loop}, run {run.number}: {count['passed']} passed, {count['failed']} failed,"
            f" {count['skipped']} skipped, {count['drove']} drove the loop, {count['seconds']} s"
            + ("" if run.complete else "; NOT COMPLETE")
        )
        return run

    def _process(self, known: dict[str, Any], limit: float) -> tuple[int, str | None]:
        recipe, run = self._recipe, self._run
        self._results.unlink(missing_ok=True)
        job = {
            "results": str(self._results),
            "done": list(run.tests),
            "left_out": [case.tests for case in recipe.left_out],
            # pytest-timeout ends what a signal can end; what does not come back to Python, this.
            "limit": recipe.test_limit * 2 + 30,
        }
        self._job.write_text(json.dumps(job))
        command: Command = [
            *(self._python, "-m", "pytest", "-p", "suites_pytest", "-p", SETUP, "-p", "no:cacheprovider"),
            *("-o", "addopts=", "-o", "faulthandler_timeout=0", "-q", "--tb=short", "--color=no", "--rootdir=."),
            *("--timeout", f"{recipe.test_limit:g}", "--timeout-method", "signal"),
            *(word.format(**known) for word in recipe.arguments),
            *(recipe.slice if self._options.slice else recipe.paths),
        ]
        if self._options.only:
            command += ["-k", self._options.only]
        env = {
            "PATH": f"{self._python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(RECIPES / "inject"),
            "PYTHONHASHSEED": "0",
            "UVPY_SUITES_LOOP": run.loop,
            "UVPY_SUITES_PATH": self._path,
            "UVPY_SUITES_JOB": str(self._job),
            **{name: value.format(**known) for name, value in recipe.environment.items()},
        }
        run.complete = False
        status = logged(command, self._log, env=env, limit=max(limit, 1), cwd=recipe.tree, mode="ab")
        return status, run.read(self._results)


def _judge(
    recipe: Recipe,
    env: Env,
    python: Path,
    served: list[Service],
    runs: list[Run],
    options: Options,
    paths: dict[str, str],
) -> bool:
    """Compares, prints and writes; whether uvpy did as stock asyncio."""
    by_loop = {loop: [run for run in runs if run.loop == loop] for loop in options.loops}
    stock = by_loop.get(STOCK, [])
    comparisons = {loop: compare(stock, found) for loop, found in by_loop.items() if loop != STOCK and stock}
    others = foreign(runs)
    strange = {name: kinds for name, kinds in others.items() if recipe.reason(recipe.foreign, name) is None}
    ours = comparisons.get("uvpy", Comparison([], [], [], []))
    excused = {name: why for name in ours.bad if (why := recipe.reason(recipe.excused, name))}
    # No defect of a test makes a loop crash or hang.
    grave = {name for run in by_loop.get("uvpy", ()) for name, test in run.tests.items() if test.grave}
    excused = {name: why for name, why in excused.items() if name not in grave}
    unexcused = dataclasses.replace(ours, bad=[name for name in ours.bad if name not in excused])
    doubtful = doubts(stock, by_loop.get("uvpy", []), paths)
    incomplete = [f"{run.loop} {run.number}" for run in runs if not run.complete]
    stale = [case.tests for case in recipe.excused if not any(matches(case.tests, name) for name in ours.bad)]
    stale = stale if options.whole else []
    good = unexcused.clean and not strange and not doubtful and not stale
    result = {
        "suite": recipe.name,
        "what": recipe.what,
        "version": recipe.version,
        "source": recipe.source,
        "python": env.key,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "whole": options.whole,
        "good": good,
        "services": {service.name: service.version for service in served},
        "versions": {loop: _version(python, loop, paths[loop]) for loop in options.loops},
        "packages": (answer([python, "-m", "pip", "freeze"]) or "").split("\n"),
        "revision": answer(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude", "*"]) or "",
        "asked": [*recipe.paths, *recipe.arguments],
        "left_out": {case.tests: case.why for case in recipe.left_out},
        "excused": excused,
        "stale": stale,
        "foreign": others,
        "unexplained_foreign": strange,
        "incomplete": incomplete,
        "doubts": doubtful,
        "comparisons": {loop: dataclasses.asdict(found) for loop, found in comparisons.items()},
        "figures": {loop: [run.count() for run in found] for loop, found in by_loop.items()},
        "runs": [
            {
                "loop": run.loop,
                "number": run.number,
                "tests": {name: dataclasses.asdict(test) for name, test in run.tests.items()},
            }
            for run in runs
        ],
    }
    name = RESULT if options.whole else PART
    (recipe.folder / name).write_text(json.dumps(result, indent=1) + "\n")
    _print(comparisons, excused, strange, doubtful, by_loop)
    for tests in stale:
        print(f"  {tests} of {recipe.name}.toml is excused and passes: to be taken out", flush=True)
    step(f"{recipe.name}: {'as on stock asyncio' if good else 'NOT as on stock asyncio'}; {recipe.name}/{name}")
    return good


def _version(python: Path, loop: str, path: str) -> str:
    if loop == STOCK:
        return answer([python, "-c", "import platform; print(platform.python_version())"]) or "?"
    code = f"import sys; sys.path.insert(0, {path!r}); import {loop}; print({loop}.__version__)"
    return answer([python, "-c", code]) or "?"


def _print(
    comparisons: dict[str, Comparison],
    excused: dict[str, str],
    strange: dict[str, list[str]],
    doubtful: list[str],
    by_loop: dict[str, list[Run]],
) -> None:
    for loop, comparison in comparisons.items():
        for title, names in dataclasses.asdict(comparison).items():
            for name in names[:40]:
                tests = [run.tests[name] for run in by_loop[loop] if name in run.tests]
                found = next((gist(test.message) for test in tests if test.bad), "")
                why = f" [excused: {excused[name]}]" if loop == "uvpy" and name in excused else ""
                print(f"  {loop} {title}: {name}{why} {found}", flush=True)
            if len(names) > 40:
                print(f"  {loop} {title}: ... and {len(names) - 40} more")
    for name, kinds in strange.items():
        print(f"  another loop ran: {name}: {', '.join(kinds)}")
    for doubt in doubtful:
        print(f"  proves nothing: {doubt}")
