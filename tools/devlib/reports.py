"""`tools/dev report`: compat/REPORT.md, made from results and from nothing else.

Whole runs of `tools/dev compat`, `suites` and `dask` leave their results under .work. What the page needs of them
is kept, small enough to be committed, in compat/results; the page is made from that folder, so that it can be made
again anywhere and a test can hold it against its data.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from .cluster import RESULT
from .outcomes import BAD, STOCK, gist
from .recipes import FOLDER, recipes
from .steps import ROOT, WORK, relative, step

KEPT = ROOT / "compat" / "results"
PAGE = ROOT / "compat" / "REPORT.md"
CPYTHON = WORK / "compat" / "results"
LOOPS = (STOCK, "uvloop", "uvpy")
LIST_LIMIT = 25
MIXIN = "test_events.SelectEventLoopTests."
"""EventLoopTestsMixin, which CPython wrote for any loop, and what its tests of a selector's loop add."""

Data = dict[str, Any]


def run() -> int:
    """Takes in new results and writes the page."""
    for path in sorted(CPYTHON.glob("*.json")):
        _keep("cpython", path.stem, _of_cpython(json.loads(path.read_text())))
    for path in sorted(FOLDER.glob("*/result.json")):
        data = json.loads(path.read_text())
        if data["whole"]:
            _keep("suites", data["suite"], _of_suite(data))
        else:
            step(f"report: {data['suite']}: only a part was run, not taken in")
    if RESULT.exists():
        _keep("dask", "throughput", json.loads(RESULT.read_text()))
    PAGE.write_text(page(_kept("cpython"), _kept("suites"), _kept("dask")))
    step(f"wrote {relative(PAGE)}")
    return 0


def _keep(kind: str, name: str, data: Data) -> None:
    path = KEPT / kind / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")


def _kept(kind: str) -> list[Data]:
    return [json.loads(path.read_text()) for path in sorted((KEPT / kind).glob("*.json"))]


def _of_suite(data: Data) -> Data:
    """All but the single tests; of those, the ids that were bad on each loop, and with what."""
    small = {key: value for key, value in data.items() if key not in ("runs", "packages")}
    bad: dict[str, dict[str, str]] = {loop: {} for loop in data["figures"]}
    for one in data["runs"]:
        for name, test in one["tests"].items():
            if test["outcome"] in BAD:
                bad[one["loop"]].setdefault(name, gist(test["message"]) or test["outcome"])
    small["bad"] = {loop: dict(sorted(found.items())) for loop, found in bad.items()}
    small["bad_on_stock"] = {
        name: {
            loop: sum(one["tests"].get(name, {}).get("outcome") in BAD for one in data["runs"] if one["loop"] == loop)
            for loop in data["figures"]
        }
        for name in small["bad"].get(STOCK, {})
    }
    small["foreign"] = len(data["foreign"])
    return small


def _of_cpython(data: Data) -> Data:
    """The totals, and the tests that did not pass, by what is said of them."""
    small = {key: data[key] for key in ("python", "loop", "loop_version", "date", "totals", "entries")}
    groups: dict[str, list[str]] = {}
    for module in data["modules"].values():
        for test, verdict in module["tests"].items():
            if verdict["category"] in ("unexpected", "as stock"):
                groups.setdefault(verdict["category"], []).append(f"{test} ({verdict['status']})")
            elif verdict["entry"]:
                groups.setdefault(f"entry {verdict['entry']}", []).append(test)
    small["groups"] = {name: sorted(tests) for name, tests in groups.items()}
    tests = {name: test for module in data["modules"].values() for name, test in module["tests"].items()}
    mixin = [test["status"] in ("pass", "skip") for name, test in tests.items() if name.startswith(MIXIN)]
    unexpected = [test["status"] for test in tests.values() if test["category"] == "unexpected"]
    small["totals"] |= {
        "mixin": f"{sum(mixin)} of {len(mixin)}",
        "hangs": unexpected.count("timeout"),
        "crashes": unexpected.count("crash"),
    }
    small["injection_failed"] = data["injection_failed"]
    small["seconds"] = round(sum(module["seconds"] for module in data["modules"].values()), 1)
    return small


def page(cpython: list[Data], suites: list[Data], dask: list[Data]) -> str:
    """The text of compat/REPORT.md."""
    lines = [
        "# What other people's tests say",
        "",
        "Made by `tools/dev report` from compat/results, which whole runs of `tools/dev compat`, `tools/dev suites`",
        "and `tools/dev dask` fill: no figure here is written by hand. README.md and suites/README.md say how the runs",
        "are made and judged.",
        "",
    ]
    lines += _cpython_part(cpython) if cpython else []
    lines += _suites_part(suites) if suites else []
    for data in dask:
        lines += _dask_part(data)
    return "\n".join(lines).rstrip() + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    head = list(head)
    return [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
        *("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows),
        "",
    ]


def _cpython_part(results: list[Data]) -> list[str]:
    results = sorted(results, key=lambda data: ([int(part) for part in data["python"].split(".")], data["loop"]))
    columns = (
        "tests",
        "passed",
        "skipped",
        "expected",
        "as stock",
        "unexpected",
        "left out",
        "drove",
        "mixin",
        "hangs",
        "crashes",
    )
    lines = [
        "## CPython's own test_asyncio",
        "",
        "*passed*: on this loop; *skipped*: stock asyncio skips them too; *expected*: named with a reason in",
        "expected.toml, which is uvpy's; *as stock*: stock asyncio fails too; *left out*: the same test on another",
        "selector; *mixin*: those of SelectEventLoopTests in test_events (EventLoopTestsMixin and more) that pass or",
        "skip themselves; *drove*: tests in which this loop really ran; *hangs*, *crashes*: those of the unexpected. An",
        "expected test may be one that waits in vain, for what its reason says.",
        "",
    ]
    lines += _table(
        ("Python", "loop", *columns, "seconds", "date"),
        (
            (
                data["python"],
                f"{data['loop']} {data['loop_version']}".strip(),
                *(data["totals"][column] for column in columns),
                data["seconds"],
                data["date"],
            )
            for data in results
        ),
    )
    for data in results:
        if data["loop"] != "uvpy":
            continue
        lines += [f"### uvpy on Python {data['python']}: what does not simply pass", ""]
        lines += _table(
            ("tests", "expected", "kind", "reason"),
            (
                (len(data["groups"].get(f"entry {name}", ())), f"`{name}`", entry["kind"], entry["reason"])
                for name, entry in data["entries"].items()
                if data["groups"].get(f"entry {name}")
            ),
        )
        for group in ("unexpected", "as stock"):
            if tests := data["groups"].get(group):
                lines += [f"{group}:", "", *_listed(tests, limit=None), ""]
        if modules := data.get("injection_failed"):
            lines += [f"The loop was never made, though stock's is, in: {', '.join(modules)}.", ""]
    return lines


def _listed(names: list[str], notes: Mapping[str, str] | None = None, *, limit: int | None = LIST_LIMIT) -> list[str]:
    notes = notes or {}
    shown = [f"- `{name}`" + (f": {notes[name]}" if name in notes else "") for name in names[:limit]]
    return shown + ([f"- and {len(names) - len(shown)} more"] if len(names) > len(shown) else [])


def _figures(data: Data, loop: str) -> str:
    """What one loop's runs gave: "passed / failed / skipped / seconds", with the range where runs differ."""
    runs = data["figures"].get(loop)
    if not runs:
        return "-"
    return " / ".join(_span([run[key] for run in runs]) for key in ("passed", "failed", "skipped", "seconds"))


def _span(values: list[float]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _suites_part(suites: list[Data]) -> list[str]:
    lines = [
        "## Other people's suites",
        "",
        "Each figure is *passed / failed / skipped / seconds*, over all runs of that loop; an expected failure counts",
        "as passed. *drove*: tests in which the loop under test ran, in the order of the columns before. *ours*: ids",
        "that were bad in a run on uvpy and in none on stock asyncio, those excused below apart; ids that did not run,",
        "or ran in addition; ids that ran without the loop though stock's was there. *as stock*: whether all of this,",
        "and what is said of the suite below, leaves nothing against uvpy.",
        "",
    ]
    if missing := sorted(recipes().keys() - {data["suite"] for data in suites}):
        lines += [f"Without the results of a whole run so far: {', '.join(missing)}.", ""]
    lines += _table(
        ("suite", "Python", *LOOPS, "drove", "ours", "as stock", "date"),
        (
            (
                f"{data['suite']} {data['version']}",
                data["python"],
                *(_figures(data, loop) for loop in LOOPS),
                ", ".join(_span([run["drove"] for run in data["figures"].get(loop, ())]) for loop in LOOPS),
                _ours(data),
                "yes" if data["good"] else "NO",
                data["date"],
            )
            for data in suites
        ),
    )
    for data in suites:
        lines += _suite(data)
    return lines


def _dask_part(data: Data) -> list[str]:
    lines = [
        "## Dask: how many tasks its scheduler gets done",
        "",
        "Scheduler, worker and client are processes of their own on loopback, all on the loop of the row. The work:",
        f"{data['tasks']} tiny tasks, half of them independent, half reduced in pairs. Medians of the rounds; *times*:",
        "of stock asyncio of the same round, above 1 where the loop is faster. `tools/dev dask` measures it.",
        "",
        f"Dask {data['dask']}, Python {data['python']}, {data['rounds']} rounds, {data['date']}.",
        "",
    ]
    return lines + _table(
        ("loop", "version", "tasks/s", "times", "scheduler's CPU time a task", "times"),
        (
            (
                f"{label} (`{data['loops'][label]}`)",
                data["versions"][label],
                figures["tasks_per_second"],
                figures["times_rate"],
                f"{figures['scheduler_us_per_task']} us",
                figures["times_cpu"],
            )
            for label, figures in data["figures"].items()
        ),
    )


def _ours(data: Data) -> str:
    found = data["comparisons"].get("uvpy")
    if found is None:
        return "-"
    bad = sum(name not in data["excused"] for name in found["bad"])
    return f"{bad}, {len(found['not_run']) + len(found['more'])}, {len(found['not_driven'])}"


def _suite(data: Data) -> list[str]:
    lines = [f"### {data['suite']}", "", f"{data['what']}. Source: {data['source']}."]
    versions = [f"{name} {version}" for name, version in {**data["versions"], **data["services"]}.items()]
    runs = [f"{len(found)} on {loop}" for loop, found in data["figures"].items()]
    if data.get("revision"):
        versions.append(f"this tree {data['revision']}")
    lines += [f"Versions: {', '.join(versions)}. Runs: {', '.join(runs)}.", ""]
    if data.get("asked"):
        lines += [f"pytest was given `{shlex.join(data['asked'])}`.", ""]
    if data["left_out"]:
        number = _span([run["left_out"] for found in data["figures"].values() for run in found if "left_out" in run])
        lines += [
            f"Left out ({number} tests):",
            "",
            *(f"- `{tests}`: {why}" for tests, why in data["left_out"].items()),
            "",
        ]
    stock: dict[str, str] = data["bad"].get(STOCK, {})
    if stock:
        said = {name: "`" + text.replace("`", "'") + "`" for name, text in stock.items()}
        for name, times in data.get("bad_on_stock", {}).items():
            said[name] += f" (runs: {', '.join(f'{number} on {loop}' for loop, number in times.items())})"
        lines += [f"Bad in a run on stock asyncio, on this machine ({len(stock)}):", ""]
        lines += [*_listed(list(stock), said, limit=None), ""]
    for loop, found in data["comparisons"].items():
        names = {"bad": "bad", "not_run": "not run", "more": "run in addition", "not_driven": "not driven"}
        for key, title in names.items():
            if found[key]:
                lines += [f"{loop}, not so on stock asyncio: {title} ({len(found[key])}):", ""]
                excused: dict[str, str] = data["excused"] if loop == "uvpy" and key == "bad" else {}
                lines += [*_listed(found[key], excused, limit=None if loop == "uvpy" else LIST_LIMIT), ""]
    if data["unexplained_foreign"]:
        lines += ["Another loop ran, of any of the three kinds of runs:", ""]
        others = {name: ", ".join(kinds) for name, kinds in data["unexplained_foreign"].items()}
        lines += [*_listed(list(others), others, limit=None), ""]
    if doubts := data.get("doubts"):
        lines += [f"Proves nothing: {'; '.join(doubts)}.", ""]
    if data["stale"]:
        lines += [f"Excused, and passes: {', '.join(data['stale'])}.", ""]
    if data["incomplete"]:
        lines += [f"Runs that did not come to their end: {', '.join(data['incomplete'])}.", ""]
    return lines
