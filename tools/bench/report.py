"""What is concluded from the samples, and the tables in which it is said."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import stats
import workloads
from loops import BASE, CONTROL
from players import Told
from rounds import Sample

STRAYS = 0.05
"""By how much asyncio may differ from itself before a run says nothing."""

CLIENT_BUSY = 0.85
"""The share of a core from which on the load generator is taken to be the limit."""


Row = dict[str, Any]
"""A loop's: medians over the rounds of what was measured, and `x_cpu` and `x_rate`: times asyncio's speed by each."""

Result = dict[str, Row]
"""A case's rows by the loop's label."""


def summarize(samples: Iterable[Sample], labels: Sequence[str]) -> dict[str, Result]:
    by_case: dict[str, dict[str, dict[int, list[Told]]]] = {}
    for sample in samples:
        rounds = by_case.setdefault(sample.case, {label: {} for label in labels})[sample.label]
        if not sample.error:
            rounds[sample.round] = sample.slices
    order = [case for case in workloads.CASES if case in by_case]
    return {case: {label: _row(by_case[case][label], by_case[case][BASE]) for label in labels} for case in order}


def _row(rounds: dict[int, list[Told]], base: dict[int, list[Told]]) -> Row:
    row: Row = {"rounds": len(rounds)}
    if not rounds:
        return {**row, "x_cpu": None, "x_rate": None}
    for name in next(iter(rounds.values()))[0]:
        row[name] = statistics.median(statistics.median(s[name] for s in slices) for slices in rounds.values())
    # The kernel splits processor time by the clock's ticks: nothing to take of a slice, but right in the sum.
    user, system = (sum(s[name] * s["operations"] for r in rounds.values() for s in r) for name in ("user", "system"))
    row |= {"user": row["cpu"] * user / (user + system), "system": row["cpu"] * system / (user + system)}
    pairs = [list(zip(base[number], rounds[number], strict=True)) for number in sorted(base.keys() & rounds.keys())]
    row["x_cpu"] = stats.ratio([[(b["cpu"], s["cpu"]) for b, s in laps] for laps in pairs])
    row["x_rate"] = stats.ratio([[(s["rate"], b["rate"]) for b, s in laps] for laps in pairs])
    return row


def strayed(results: dict[str, Result]) -> list[str]:
    """Where asyncio differs from itself by too much to believe the rest."""
    found = []
    for case, result in results.items():
        for name, what in (("x_cpu", "CPU time"), ("x_rate", "rate")):
            control: stats.Ratio | None = result[CONTROL][name]
            shown = name == "x_cpu" or case in workloads.ECHO
            if shown and control is None:
                found.append(f"{case}: asyncio could not be compared with itself by {what}")
            if shown and control and abs(control.median - 1) > STRAYS:
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


_MICRO_HEAD = ("loop", "CPU ns an operation", "times asyncio", "95 %", "rounds")
_ECHO_HEAD = (
    *("loop", "requests/s", "times asyncio", "95 %"),
    *("CPU us a request", "user + system", "times asyncio", "95 %", "p50 us", "p99 us", "client's CPU", "rounds"),
)


def _micro_row(loop: str, row: dict[str, Any]) -> list[str]:
    cpu = f"{row['cpu'] * 1e9:.0f}" if "cpu" in row else "failed"
    return [loop, cpu, *_times(row["x_cpu"]), str(row["rounds"])]


def _echo_row(loop: str, row: dict[str, Any]) -> list[str]:
    if not row["rounds"]:
        return [loop, "failed", *[""] * (len(_ECHO_HEAD) - 3), "0"]
    cpu, user, system, p50, p99 = (row[name] * 1e6 for name in ("cpu", "user", "system", "p50", "p99"))
    client = f"{row['client']:.0%}{' LIMIT' if row['client'] > CLIENT_BUSY else ''}"
    return [
        *(loop, f"{row['rate']:,.0f}", *_times(row["x_rate"])),
        *(f"{cpu:.2f}", f"{user:.2f} + {system:.2f}", *_times(row["x_cpu"])),
        *(f"{p50:.0f}", f"{p99:.0f}", client, str(row["rounds"])),
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
