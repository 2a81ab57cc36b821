"""What is concluded from the samples, and the tables in which it is said."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import stats
import workloads
from loops import BASE, CONTROL
from samples import Sample

STRAYS = 0.05
"""By how much asyncio may differ from itself before a run says nothing."""

CLIENT_BUSY = 0.85
"""The share of a core from which on the load generator is taken to be the limit."""


class Taken(NamedTuple):
    """A sample in its place; `sample` is None where it failed, and `error` says why."""

    round: int
    case: str
    loop: str
    sample: Sample | None
    error: str | None = None


Result = dict[str, dict[str, Any]]
"""Of a case, by loop: medians of what was measured, and `x_cpu` and `x_rate`, how many times asyncio's speed it is."""


def summarize(taken: Iterable[Taken]) -> dict[str, Result]:
    by_case: dict[str, dict[str, dict[int, Sample]]] = {}
    for t in taken:
        rounds = by_case.setdefault(t.case, {}).setdefault(t.loop, {})
        if t.sample is not None:
            rounds[t.round] = t.sample
    return {case: _result(case, loops) for case, loops in by_case.items()}


def _result(case: str, loops: dict[str, dict[int, Sample]]) -> Result:
    base = loops.get(BASE, {})
    result: Result = {}
    for loop, rounds in loops.items():
        row: dict[str, Any] = {"samples": len(rounds)}
        if rounds:
            numbers = [name for name, value in next(iter(rounds.values())).items() if isinstance(value, float)]
            row |= {name: statistics.median(s[name] for s in rounds.values()) for name in numbers}
        both = [(base[number], rounds[number]) for number in sorted(base.keys() & rounds.keys())]
        row["x_cpu"] = stats.ratio([(b["cpu"], s["cpu"]) for b, s in both])
        if case in workloads.ECHO:
            row["x_rate"] = stats.ratio([(s["rate"], b["rate"]) for b, s in both])
        result[loop] = row
    return result


def strayed(results: dict[str, Result]) -> list[str]:
    """Where asyncio differs from itself by too much to believe the rest."""
    found = []
    for case, result in results.items():
        for name, what in (("x_cpu", "CPU time"), ("x_rate", "rate")):
            control: stats.Ratio | None = result.get(CONTROL, {}).get(name)
            if control and abs(control.median - 1) > STRAYS:
                found.append(f"{case}: asyncio has {control.median:.3f} times its own speed by {what}")
    return found


def show(results: dict[str, Result]) -> str:
    tables = []
    for case, result in results.items():
        echo = case in workloads.ECHO
        rows = [(_echo_row if echo else _micro_row)(loop, row) for loop, row in result.items()]
        head = _ECHO_HEAD if echo else _MICRO_HEAD
        tables.append(f"{case}: {workloads.CASES[case].text}\n\n{table(head, rows)}\n")
    return "\n".join(tables)


_MICRO_HEAD = ("loop", "CPU ns an operation", "times asyncio", "95 %", "samples")
_ECHO_HEAD = (
    *("loop", "requests/s", "times asyncio", "95 %"),
    *("CPU us a request", "user + system", "times asyncio", "95 %", "p50 us", "p99 us", "client's CPU", "samples"),
)


def _micro_row(loop: str, row: dict[str, Any]) -> list[str]:
    cpu = f"{row['cpu'] * 1e9:.0f}" if "cpu" in row else "failed"
    return [loop, cpu, *_times(row["x_cpu"]), str(row["samples"])]


def _echo_row(loop: str, row: dict[str, Any]) -> list[str]:
    if not row["samples"]:
        return [loop, "failed", *[""] * (len(_ECHO_HEAD) - 3), "0"]
    cpu, user, system, p50, p99 = (row[name] * 1e6 for name in ("cpu", "user", "system", "p50", "p99"))
    client = f"{row['client']:.0%}{' LIMIT' if row['client'] > CLIENT_BUSY else ''}"
    return [
        *(loop, f"{row['rate']:,.0f}", *_times(row["x_rate"])),
        *(f"{cpu:.2f}", f"{user:.2f} + {system:.2f}", *_times(row["x_cpu"])),
        *(f"{p50:.0f}", f"{p99:.0f}", client, str(row["samples"])),
    ]


def _times(ratio: stats.Ratio | None) -> list[str]:
    return [f"{ratio.median:.2f}", f"{ratio.low:.2f}-{ratio.high:.2f}"] if ratio else ["", ""]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as it is: the first column to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * (w - 1) + ":") if i else "-" * w for i, w in enumerate(widths)]
    return "\n".join((line(head), line(rule), *(line(row) for row in rows)))
