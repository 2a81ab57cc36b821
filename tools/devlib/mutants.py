"""`tools/dev mutants`: the extension with one planted fault at a time; the tests must see each.

tools/mutants.toml lists them:

    [[mutant]]
    name = "ring-lifo"                       # csrc asks py::mutant("ring-lifo")
    what = "the ring gives its newest handle first"
    tests = ["tests/core/test_ready.py"]     # besides tests/properties; may be empty
"""

from __future__ import annotations

import dataclasses
import re
import tomllib

from . import builds, lint
from .builds import Env
from .steps import LOGS, ROOT, Command, Failure, logged, quiet, relative, step

LIST = ROOT / "tools" / "mutants.toml"
PROPERTIES = "tests/properties"
TIME_LIMIT = 300.0


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    what: str
    tests: tuple[str, ...]


def listed() -> list[Mutant]:
    """The mutants of the list, which must be those of the sources."""
    if not LIST.exists():
        raise Failure(f"there is no {relative(LIST)}")
    with LIST.open("rb") as file:
        entries = tomllib.load(file).get("mutant", [])
    found = [Mutant(e["name"], e["what"], tuple(e.get("tests", ()))) for e in entries]
    planted = {name for path in lint.cpp_files() for name in re.findall(r'py::mutant\("([\w-]+)"\)', path.read_text())}
    names = {mutant.name for mutant in found}
    if names != planted:
        only_listed, only_planted = sorted(names - planted), sorted(planted - names)
        raise Failure(f"{relative(LIST)} and csrc differ: only listed {only_listed}, only in csrc {only_planted}")
    return found


def run(env: Env, names: list[str]) -> int:
    env.install("build", "test")
    chosen = [mutant for mutant in listed() if not names or mutant.name in names]
    if unknown := set(names) - {mutant.name for mutant in chosen}:
        raise Failure(f"no mutant {', '.join(sorted(unknown))} in {relative(LIST)}")

    # What fails without a fault shows nothing about one.
    tests = sorted({test for mutant in chosen for test in (PROPERTIES, *mutant.tests)})
    step(f"no fault: {' '.join(tests)} must pass")
    env.build()
    quiet(_pytest(env, tests), "mutants", what="the tests without a fault", env=env.environment())

    survived = []
    for mutant in chosen:
        variant = builds.mutant(mutant.name)
        env.build(variant)
        log = f"mutant-{mutant.name}"
        # The tests named for it first: they are the likeliest to see it.
        caught = _fails(_pytest(env, [*mutant.tests, PROPERTIES]), log, env.environment(variant))
        step(f"{mutant.name}: {'caught by ' + caught if caught else 'NOT CAUGHT'} ({mutant.what})")
        if not caught:
            survived.append(mutant.name)
    if survived:
        raise Failure(f"{len(survived)} of {len(chosen)} not caught: {', '.join(survived)}")
    step(f"all {len(chosen)} caught")
    return 0


def _pytest(env: Env, tests: list[str]) -> Command:
    return [env.bin / "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]


def _fails(command: Command, log: str, env: dict[str, str]) -> str:
    """The first failing test, or that the run hung or crashed; empty when all passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{log}.log"
    status = logged(command, path, env=env, limit=TIME_LIMIT)
    if status == 0:
        return ""
    if status == 124:
        return f"a time limit of {TIME_LIMIT:.0f} s"
    text = path.read_text(errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    if failed and status == 1:
        return failed[1]
    if status < 0:
        return f"a crash (signal {-status})"
    raise Failure(f"pytest ended with status {status} and named no test; see {relative(path)}")
