"""Instructions an operation, counted under callgrind: exact where times are noisy, blind to the kernel and to caches.

A measured process warms up, then has callgrind count one batch (native/marks.c). So that a count is the same the next
time: no randomised addresses or hashes, sizes that are fixed, no garbage collection on the way, an environment of a few
variables.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import loops
import native
import report
from cases import COUNTED
from native import Failed
from players import Process, certificate, environment, measured

LIMIT = 300
ECHO, TLS = "tcp_echo", "tls_echo_1"
FLOOR_REQUESTS = (100, 600)

Counted = dict[str, float | None]
"""Instructions an operation in all, and in the loop's own library with its libuv (None for asyncio)."""

Found = dict[str, dict[str, Counted | str]]
"""By case and contender; a text where it failed."""

_KEPT = ("PATH", "HOME", "UVPY_SITE", "LD_LIBRARY_PATH", "CC", "CXX", "PYTHONHASHSEED")
_POSITIONS = tuple("0123456789+-*")
_NAMED = re.compile(r"^(ob|cob)=\((\d+)\)(?: (.*))?$")


def count(names: list[str], labels: list[str]) -> Found:
    """The floors play the cases that they have a part in: the C program the echo, CPython alone what has one without a
    loop.
    """
    if shutil.which("valgrind") is None:
        raise Failed("valgrind is not installed")
    native.marks()
    found: Found = {}
    for name in names:
        for label in labels:
            if not _plays(label, name):
                continue
            print(f"callgrind: {name}, {label}", flush=True)
            try:
                found.setdefault(name, {})[label] = _floor() if label == loops.FLOOR else _count(name, label)
            except Failed as failed:
                found.setdefault(name, {})[label] = str(failed)
    return found


def _plays(label: str, name: str) -> bool:
    if label == loops.FLOOR:
        return name == ECHO
    return bool(COUNTED[name].bare) if label == loops.BARE else label in (*loops.LOOPS, *COUNTED[name].extras)


def show(found: Found) -> str:
    head = ("loop", "instructions an operation", "in its own library and libuv")
    tables = []
    for name, by_label in found.items():
        rows = [
            [label, row, ""]
            if isinstance(row, str)
            else [label, *("" if row[which] is None else f"{row[which]:,.1f}" for which in ("all", "own"))]
            for label, row in by_label.items()
        ]
        tables.append(f"{name}: {COUNTED[name].text}\n\n{report.table(head, rows)}\n")
    return "\n".join(tables)


def _count(name: str, label: str) -> Counted:
    operations = COUNTED[name].counted
    costs = {of: cost / operations for of, cost in _run(name, label).items()}
    library = loops.library(label)
    if library is None:
        return {"all": sum(costs.values()), "own": None}
    # A libuv of the system's counts as the loop's own: uvloop has its libuv built in.
    own = [of for of in costs if Path(of).resolve() == library or Path(of).name.startswith("libuv.so")]
    return {"all": sum(costs.values()), "own": sum(costs[of] for of in own)}


def _command(out: Path) -> list[str | Path]:
    fixed = ["setarch", os.uname().machine, "-R"] if shutil.which("setarch") else []
    return [*fixed, "valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]


def _environment(name: str = "") -> dict[str, str]:
    kept = {key: value for key, value in environment().items() if key in _KEPT}
    return {**kept, "BENCH_CERTIFICATE": str(certificate())} if name == TLS else kept


def _run(name: str, label: str) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        counted = measured("micro", label, name, "--count", "--limit", LIMIT)
        process = Process([*_command(out), "--instr-atstart=no", *counted], _environment(name), LIMIT)
        try:
            process.end()
        finally:
            process.close()
        return _written(Path(f"{out}.1"))


def _floor() -> Counted:
    """The C program's echo: of two lengths, so that its start drops out."""
    short, long = (sum(_run_floor(requests).values()) for requests in FLOOR_REQUESTS)
    each = (long - short) / (FLOOR_REQUESTS[1] - FLOOR_REQUESTS[0])
    return {"all": each, "own": each}


def _run_floor(requests: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        server = Process([*_command(out), native.floor(), "echo"], _environment(), LIMIT)
        try:
            address = server.answer()["address"]
            load = Process([native.load_generator(), "--limit", str(LIMIT), "tcp", address], environment())
            try:
                load.answer()
                load.ask(f"count {requests}")
                load.end()
            finally:
                load.close()
            server.child.terminate()  # callgrind writes what it has
            server.child.wait(LIMIT)
        finally:
            server.close()
        return _written(out)


def _written(file: Path) -> Counter[str]:
    if not file.exists():
        raise Failed("callgrind wrote nothing")
    return by_object(file.read_text().splitlines())


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
