# SPDX-License-Identifier: MIT
"""What stock asyncio does in the same tests: which it skips, and in which of them its loop is made and run.

Kept in stock/<minor>.json, written by `run.py --loop asyncio --record`. We want ours to skip the same tests,
and to be made and run in the same tests: else a run could pass because nothing of ours took part.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from engine import ModuleRun

FOLDER = Path(__file__).resolve().parent / "stock"


@dataclasses.dataclass
class Stock:
    """Stock's behaviour, by test id. `full` is the version it was seen on, empty when there is no record."""

    full: str = ""
    status: dict[str, str] = dataclasses.field(default_factory=dict)
    """Only what is not a pass."""
    made: set[str] = dataclasses.field(default_factory=set)
    ran: set[str] = dataclasses.field(default_factory=set)
    modules: set[str] = dataclasses.field(default_factory=set)
    skipped_modules: set[str] = dataclasses.field(default_factory=set)
    findings: set[tuple[str, str]] = dataclasses.field(default_factory=set)

    @classmethod
    def of(cls, full: str, runs: list[ModuleRun]) -> Stock:
        """From a run on stock asyncio."""
        stock = cls(full)
        for run in runs:
            stock.modules.add(run.name)
            if run.skipped:
                stock.skipped_modules.add(run.name)
            for test, result in run.results.items():
                if result.status != "pass":
                    stock.status[test] = result.status
                if result.made:
                    stock.made.add(test)
                if result.ran:
                    stock.ran.add(test)
            stock.findings |= {(test, kind_of(line)) for test, line in run.findings}
        return stock

    @classmethod
    def load(cls, minor: str) -> Stock:
        """The record of a minor version, or an empty one."""
        path = FOLDER / f"{minor}.json"
        if not path.exists():
            return cls()
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stock = cls(data["python"])
        for name, module in data["modules"].items():
            stock.modules.add(name)
            if module.get("skipped"):
                stock.skipped_modules.add(name)
            for group, rows in module.get("classes", {}).items():
                prefix = f"{name}.{group}."
                ran = {prefix + test for test in rows.get("ran", ())}
                stock.ran |= ran
                stock.made |= ran | {prefix + test for test in rows.get("made", ())}
                stock.status |= {prefix + test: status for test, status in rows.get("not passed", {}).items()}
        stock.findings = {(test, kind) for test, kind in data["findings"]}
        return stock


def save(minor: str, full: str, runs: list[ModuleRun]) -> Path:
    """Write the record of a whole run on stock asyncio. What ran was made: listed under `ran` only."""
    modules: dict[str, Any] = {}
    for run in sorted(runs, key=lambda run: run.name):
        if run.skipped:
            modules[run.name] = {"skipped": run.skipped}
            continue
        classes: dict[str, Any] = {}
        for test, result in sorted(run.results.items()):
            group, _, name = test.removeprefix(run.name + ".").rpartition(".")
            rows = classes.setdefault(group, {})
            if result.ran:
                rows.setdefault("ran", []).append(name)
            elif result.made:
                rows.setdefault("made", []).append(name)
            if result.status != "pass":
                rows.setdefault("not passed", {})[name] = result.status
        modules[run.name] = {
            "tests": len(run.loaded),
            "classes": {g: rows for g, rows in classes.items() if rows},
        }
    findings = sorted({(test, kind_of(line)) for run in runs for test, line in run.findings})
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{minor}.json"
    path.write_text(_text({"python": full, "modules": modules, "findings": findings}), encoding="utf-8")
    return path


def _text(data: dict[str, Any]) -> str:
    """JSON with a line for each class of tests, so that a new record differs where asyncio does."""
    modules = []
    for name, module in data["modules"].items():
        classes = [f"   {json.dumps(group)}: {json.dumps(rows)}" for group, rows in module.pop("classes", {}).items()]
        row = json.dumps(module)[:-1]
        modules.append(
            f"  {json.dumps(name)}: {row}" + (', "classes": {\n' + ",\n".join(classes) + "}}" if classes else "}")
        )
    head = f' "python": {json.dumps(data["python"])},\n "findings": {json.dumps(data["findings"])},\n'
    return "{\n" + head + ' "modules": {\n' + ",\n".join(modules) + "\n }\n}\n"


def kind_of(line: str) -> str:
    """What a line of stderr is about, without the parts that differ from run to run."""
    for kind in (
        "Exception ignored",
        "ResourceWarning",
        "Task was destroyed",
        "never awaited",
        "never retrieved",
    ):
        if kind in line:
            return kind
    return "other"
