"""What is concluded from the samples, and the tables in which it is said."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import cases
import stats
from cases import CASES, Case, Load, Memory
from loops import BASE, CONTROL, OURS
from players import PERCENTILES, Told, percentile_name
from rounds import Sample

STRAYS = {"cpu": 0.05, "rate": 0.05, "bytes": 0.05, "p50": 0.1, "p99": 0.25}
"""By how much asyncio may differ from itself, by figure, before a case says nothing."""

SURE = 3
"""So many times as far its interval may reach: where it reaches farther, too little is known of the machine's noise."""

CLIENT_BUSY = 0.85
"""The share of a core from which on the load generator is taken to be the limit."""

CURVE = tuple(round(100 * (1 - 10 ** -(tenth / 10)), 5) for tenth in range(3, 41))
"""Percentiles that a curve is drawn through: as many for each nine."""

Row = dict[str, Any]
"""A contender's: medians over the rounds of what was measured, and `x`: times better than asyncio, by figure."""

Result = dict[str, Row]
"""A case's rows by label."""


def summarize(samples: Iterable[Sample], there: Sequence[str]) -> dict[str, Result]:
    by_case: dict[str, dict[str, list[Sample]]] = {}
    for sample in samples:
        by_case.setdefault(sample.case, {}).setdefault(sample.label, []).append(sample)
    found: dict[str, Result] = {}
    for name in (name for name in CASES if name in by_case):
        played = by_case[name]
        labels = cases.labels(CASES[name], list(there))
        result = {label: _row(played.get(label, []), played.get(BASE, [])) for label in labels}
        for ours in (label for label in result if label.startswith(OURS)):
            result[ours]["against"] = {
                label: _ratio(CASES[name].figure, played.get(ours, []), played.get(label, []))
                for label in labels
                if label != ours
            }
        found[name] = result
    return found


def _ratio(figure: str, samples: list[Sample], others: list[Sample]) -> stats.Ratio | None:
    """How many times better the one is than the other, from the laps that both have played."""
    rounds, against = ({s.round: s.slices for s in which if not s.error} for which in (samples, others))
    return stats.ratio(
        [
            [_pair(figure, a[figure], b[figure]) for a, b in zip(rounds[number], against[number], strict=True)]
            for number in sorted(rounds.keys() & against.keys())
            if figure in rounds[number][0] and figure in against[number][0]
        ]
    )


def _row(samples: list[Sample], base: list[Sample]) -> Row:
    row: Row = {"rounds": 0, "failed": sum(1 for s in samples if s.error), "x": {}}
    rounds = {s.round: s.slices for s in samples if not s.error}
    if not rounds:
        return row
    row["rounds"] = len(rounds)
    numbers = [name for name, value in next(iter(rounds.values()))[0].items() if isinstance(value, int | float)]
    for name in numbers:
        row[name] = statistics.median(statistics.median(s[name] for s in slices) for slices in rounds.values())
    all_slices = [s for slices in rounds.values() for s in slices]
    for name in ("due", "unanswered"):
        if name in row:
            row[name] = sum(s[name] for s in all_slices)
    if "user" in row:
        row |= _split(row["cpu"], all_slices)
    times = stats.Histogram()
    for sample in samples:
        if not sample.error:
            times.add(sample.histogram)
            row |= sample.calls
    if times.count:
        row |= {percentile_name(p): times.percentile(p) for p in PERCENTILES}
        row["times"] = times.count
        row["curve"] = [(percent, times.percentile(percent)) for percent in CURVE]
    row["x"] = {figure: _ratio(figure, samples, base) for figure in STRAYS}
    return row


def _pair(figure: str, ours: float, base: float) -> tuple[float, float]:
    """So that their quotient is above 1 where ours is better: more of a rate, less of all else."""
    return (ours, max(base, 1e-12)) if figure == "rate" else (base, max(ours, 1e-12))


def _split(cpu: float, slices: list[Told]) -> Row:
    """Processor time in user and system, by the share of each in the sum of all."""
    user, system = (sum(s[name] for s in slices) for name in ("user", "system"))
    share = user / (user + system) if user + system else 1.0
    return {"user": cpu * share, "system": cpu * (1 - share)}


def times_asyncio(row: Row, figure: str) -> stats.Ratio | None:
    found: stats.Ratio | None = row["x"].get(figure)
    return found


def strayed(results: dict[str, Result]) -> dict[str, str]:
    """By case: why it says nothing, since asyncio differs from itself by too much or could not be compared."""
    found = {}
    for name, result in results.items():
        figure = CASES[name].figure
        control = times_asyncio(result[CONTROL], figure) if CONTROL in result else None
        if control is None:
            found[name] = f"asyncio could not be compared with itself by {figure}"
        elif abs(control.median - 1) > STRAYS[figure]:
            found[name] = f"asyncio is {control.median:.3f} times as good as itself by {figure}"
        elif max(1 - control.low, control.high - 1) > SURE * STRAYS[figure]:
            found[name] = f"asyncio is {control.low:.2f} to {control.high:.2f} times as good as itself by {figure}"
    return found


def limited(row: Row) -> bool:
    """Whether the client was the limit of what was measured."""
    return bool(row.get("client", 0.0) > CLIENT_BUSY)


def show(results: dict[str, Result], void: dict[str, str]) -> str:
    tables = []
    for name, result in results.items():
        text = f"\nVOID: {void[name]}\n" if name in void else ""
        tables.append(f"{name}: {CASES[name].text}\n{text}\n{case_table(CASES[name], result)}\n")
    return "\n".join(tables)


def case_table(case: Case, result: Result, *, padded: bool = True) -> str:
    columns = _columns(case, result)
    rows = [[label, *(_cell(row, show) for _, show in columns), _rounds(row)] for label, row in result.items()]
    return table(("loop", *(head for head, _ in columns), "rounds"), rows, padded=padded)


def _rounds(row: Row) -> str:
    return f"{row['rounds']}{f', {failed} failed' if (failed := row['failed']) else ''}"


def _cell(row: Row, show: Any) -> str:
    try:
        return str(show(row)) if row["rounds"] else ""
    except KeyError:
        return ""  # this contender has no such figure


def _columns(case: Case, result: Result) -> list[tuple[str, Any]]:
    """What there is to say of a case: head, and the cell of a row."""

    def has(name: str) -> bool:
        return any(name in row for row in result.values())

    def ratio(row: Row, figure: str) -> str:
        found = times_asyncio(row, figure)
        return f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})" if found else ""

    columns: list[tuple[str, Any]] = []
    if isinstance(case, Memory):
        columns.append(("bytes a connection", lambda row: f"{row['bytes']:,.0f}"))
    else:
        columns.append(("operations/s", lambda row: f"{row['rate']:,.0f}"))
    for figure in dict.fromkeys((case.figure, "cpu") if isinstance(case, Load) and has("cpu") else (case.figure,)):
        columns.append((f"times asyncio by {figure} (95 %)", lambda row, figure=figure: ratio(row, figure)))
    if has("cpu"):
        columns.append(("CPU us an operation", lambda row: f"{row['cpu'] * 1e6:.2f}"))
        columns.append(("user + system", lambda row: f"{row['user'] * 1e6:.2f} + {row['system'] * 1e6:.2f}"))
    if has("p50"):
        for percent in PERCENTILES:
            name = percentile_name(percent)
            columns.append((f"p{percent:g} us", lambda row, name=name: f"{row[name] * 1e6:,.0f}"))
    if has("calls"):
        columns.append(("system calls", lambda row: f"{row['calls']:.2f}"))
        columns.append(("polls", lambda row: f"{row['polls']:.2f}"))
    if has("wakeups"):
        columns.append(("client's wake-ups", lambda row: f"{row['wakeups']:.2f}"))
    if has("busy"):
        columns.append(("busy thread's speed", lambda row: f"{row['busy']:.0%}"))
    if has("unanswered") and any(row.get("unanswered") for row in result.values()):
        columns.append(("unanswered", lambda row: f"{row['unanswered']} of {row['due']}"))
    if has("late"):
        columns.append(("client late us", lambda row: f"{row['late'] * 1e6:,.0f}"))
    if isinstance(case, Load) and has("client"):
        columns.append(("client's CPU", lambda row: f"{row['client']:.0%}{' LIMIT' if limited(row) else ''}"))
    return columns


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, padded: bool = True) -> str:
    """A Markdown table: the first column to the left, numbers to the right. Padded it can be read as it is."""
    widths = [max(len(row[i]) for row in (head, *rows)) if padded else 2 for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * (w - 1) + ":") if i else "-" * w for i, w in enumerate(widths)]
    return "\n".join((line(head), line(rule), *(line(row) for row in rows)))
