"""The stored counts of instructions that CI compares with, by interpreter: baseline.json.

A count means something only beside one of the same interpreter, compiler and libuv, so these are stored with it; where
they differ the comparison is refused, not left out.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from pathlib import Path
from typing import Any

import loops
from callgrind import Found
from native import Failed

FILE = Path(__file__).resolve().parent / "baseline.json"
LIMIT = 0.05
"""More than so much more is a failure, until the baseline is renewed in the same commit, with a reason."""

RENEW = "renew it: tools/dev bench --callgrind --renew"

Key = dict[str, str]
Cases = dict[str, dict[str, float]]


def key() -> Key:
    """What a count depends on besides our sources."""
    compiler = [*shlex.split(os.environ.get("CXX", "c++")), "--version"]
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "build": ", ".join(platform.python_build()),
        "python's compiler": platform.python_compiler(),
        "compiler": _first_line(compiler),
        "libuv": str(__import__("uvpy").libuv_version),
        "valgrind": _first_line(["valgrind", "--version"]),
        "machine": platform.machine(),
    }


def _first_line(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, IndexError, subprocess.CalledProcessError) as error:
        raise Failed(f"{shlex.join(command)}: {error}") from None


def load(file: Path = FILE) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return stored


def expected(stored: dict[str, Any], here: Key) -> Cases:
    """The stored counts for this interpreter; Failed where there are none, or they are of another make."""
    entry = stored.get(here["python"])
    if entry is None:
        known = ", ".join(stored) or "none at all"
        raise Failed(f"the baseline has no {here['python']}, only {known}; {RENEW}")
    different = [
        f"{n}: {entry['key'].get(n)} there, {value} here" for n, value in here.items() if entry["key"].get(n) != value
    ]
    if different:
        raise Failed(f"the baseline is of another make ({'; '.join(different)}); {RENEW}")
    cases: Cases = entry["cases"]
    return cases


def counts(found: Found) -> Cases:
    """Those of our loop; Failed where one could not be counted."""
    cases: Cases = {}
    for name, by_label in found.items():
        row = by_label[loops.OURS]
        if isinstance(row, str):
            raise Failed(f"{name}: {row}")
        cases[name] = {which: round(value, 1) for which, value in row.items() if value is not None}
    return cases


def compare(stored: Cases, counted: Cases) -> tuple[list[str], list[str]]:
    """What is worse by more than the limit or was never stored, and what is better by more than that."""
    worse: list[str] = []
    better: list[str] = []
    for name, numbers in counted.items():
        if name not in stored:
            worse.append(f"{name} is not in the baseline; {RENEW} --only {name}")
            continue
        for which, value in numbers.items():
            before = stored[name].get(which)
            if before is None:
                worse.append(f"{name}, {which}: not in the baseline; {RENEW} --only {name}")
                continue
            change = value / before - 1
            if abs(change) > LIMIT:
                (worse if change > 0 else better).append(
                    f"{name}, {which}: {before:,.1f} -> {value:,.1f} instructions an operation ({change:+.1%})"
                )
    return worse, better


def renewed(stored: dict[str, Any], here: Key, counted: Cases) -> dict[str, Any]:
    """With the new counts; those of cases that were not counted stay only where they are of the same make."""
    entry = stored.get(here["python"], {})
    kept = entry["cases"] if entry.get("key") == here else {}
    return {**stored, here["python"]: {"key": here, "cases": dict(sorted({**kept, **counted}.items()))}}


def store(baseline: dict[str, Any], file: Path = FILE) -> None:
    file.write_text(json.dumps(baseline, indent=2) + "\n")
