"""Instructions an operation, counted under callgrind: exact where times are noisy, blind to the kernel and to caches.

Each case runs at two lengths; the difference, divided by the operations between them, has no start-up in it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import loops
import report
import workloads
from players import Failed, Process, environment, measured

LENGTHS = (1, 3)
LIMIT = 300

Counted = dict[str, float | None]

_POSITIONS = tuple("0123456789+-*")
_NAMED = re.compile(r"^(ob|cob)=\((\d+)\)(?: (.*))?$")


def count(cases: list[str], labels: list[str]) -> dict[str, dict[str, Counted | str]]:
    """By case and loop: instructions an operation in all, and in the loop's own library (None for asyncio)."""
    if shutil.which("valgrind") is None:
        raise Failed("valgrind is not installed")
    found: dict[str, dict[str, Counted | str]] = {}
    for case in cases:
        for label in labels:
            print(f"callgrind: {case}, {label}", flush=True)
            try:
                found.setdefault(case, {})[label] = _count(case, loops.MODULES[label])
            except Failed as failed:
                found.setdefault(case, {})[label] = str(failed)
    return found


def show(found: dict[str, dict[str, Counted | str]]) -> str:
    head = ("loop", "instructions an operation", "in its own library and libuv")
    tables = []
    for case, by_loop in found.items():
        rows = [
            [label, row, ""]
            if isinstance(row, str)
            else [label, *("" if row[name] is None else f"{row[name]:,.1f}" for name in ("all", "own"))]
            for label, row in by_loop.items()
        ]
        tables.append(f"{case}: {workloads.CASES[case].text}\n\n{report.table(head, rows)}\n")
    return "\n".join(tables)


def _count(case: str, module: str) -> Counted:
    short, long = (_run(case, module, batches) for batches in LENGTHS)
    operations = (LENGTHS[1] - LENGTHS[0]) * workloads.MICRO[case].counted
    library = loops.library(module)
    more = {name: (long[name] - short[name]) / operations for name in long}
    if library is None:
        return {"all": sum(more.values()), "own": None}
    # A libuv of the system's counts as the loop's own: uvloop has its libuv built in.
    own = [name for name in more if Path(name).resolve() == library or Path(name).name.startswith("libuv.so")]
    return {"all": sum(more.values()), "own": sum(more[name] for name in own)}


def _run(case: str, module: str, batches: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        valgrind = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command = [*valgrind, *measured("micro", module, case, "--counted", "--limit", LIMIT)]
        process = Process(command, environment(), LIMIT)
        try:
            process.answer()
            for _ in range(batches):
                process.ask("0")
            process.end()
        finally:
            process.close()
        return by_object(out.read_text().splitlines())


def by_object(lines: list[str]) -> Counter[str]:
    """Instructions by shared object, from callgrind's output: "ob=" opens an object's part, "(3)" stands for a name."""
    names: dict[str, str] = {}
    costs: Counter[str] = Counter()
    current = "?"
    for line in _own_costs(lines):
        if named := _NAMED.match(line):
            kind, key, name = named.groups()
            if name:
                names[key] = name
            if kind == "ob":
                current = names[key]
        elif line.startswith(_POSITIONS):
            costs[current] += int(line.split()[1])
    return costs


def _own_costs(lines: list[str]) -> Iterator[str]:
    """The lines without those that say what a call cost: they repeat what the called function's own lines say."""
    skip = False
    for line in lines:
        if not skip:
            yield line
        skip = line.startswith("calls=")
