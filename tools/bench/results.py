"""RESULTS.md and its pictures, from the JSON of runs. No figure in them is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import callgrind
import loops
import pictures
import report
import targets
from cases import CASES, FAMILIES
from loops import BARE, BASE, CONTROL
from pictures import Bar
from stats import Ratio
from targets import Data

HERE = Path(__file__).resolve().parent
NAME, PICTURES = "RESULTS.md", "pictures"

BARS = {
    "echo": (
        "Echo, times asyncio by requests/s",
        *("tcp_echo_10_t", "tcp_echo_200_t", "tcp_echo_10k_t", "tcp_echo_100k_t", "buffered_echo_t", "streams_echo_t"),
        *("sock_echo_t", "tls_echo_t", "unix_echo_t", "udp_echo_t"),
    ),
    "http": (
        "HTTP, times asyncio by requests/s",
        *(f"{server}_{n}" for server in ("http_raw", "uvicorn", "aiohttp") for n in (8, 200)),
    ),
    "scheduling": (
        "Callbacks, timers, tasks: times asyncio by processor time",
        *("call_soon_burst", "call_soon_chain", "threadsafe_own", "call_later_cancel", "call_later_among", "timers"),
        *("sleep0", "task_spawn", "futures", "gather"),
    ),
}
CURVES = {
    "latency_tail": ("tail",),
    "latency_http_raw": ("http_raw_at_80",),
    "latency_uvicorn": ("uvicorn_at_80",),
    "latency_aiohttp": ("aiohttp_at_80",),
}
CONVOY = ("convoy_20", "convoy_20_pinned", "convoy_500", "convoy_500_pinned", "convoy_2_threads", "convoy_4_threads")


def merged(runs: Sequence[dict[str, Any]]) -> Data:
    """What the runs say together; of a case that several have measured the last counts."""
    data = Data()
    for run in runs:
        for name, result in run.get("results", {}).items():
            data.results[name] = {label: _revived(row) for label, row in result.items()}
            data.void.pop(name, None)
        data.void |= {name: text for name, text in run.get("void", {}).items() if name in data.results}
        data.instructions |= run.get("instructions", {})
    return data


def _revived(value: Any) -> Any:
    """Ratios as they were before JSON."""
    if not isinstance(value, dict):
        return value
    if value.keys() == set(Ratio._fields):
        return Ratio(**value)
    return {name: _revived(inner) for name, inner in value.items()}


def drawn(data: Data) -> dict[str, str]:
    """The pictures by file name; one that nothing was measured for is not there."""
    found: dict[str, str] = {}
    for name, (title, *names) in BARS.items():
        if groups := {CASES[n].text: bars for n in names if (bars := _beside_asyncio(data, n))}:
            found[f"{name}.svg"] = pictures.bars(title, groups, lambda value: f"{value:.2f}", one=BASE)
    for name, (case,) in CURVES.items():
        if lines := _latencies(data, case):
            found[f"{name}.svg"] = pictures.curves(CASES[case].text, lines, under="time from due to answered")
    if groups := {
        f"{CASES[n].text}: {p}": bars for n in CONVOY for p in ("p50", "p99") if (bars := _plain(data, n, p))
    }:
        title = "Beside busy threads: time from due to answered"
        found["convoy.svg"] = pictures.bars(title, groups, pictures.time_text, logarithmic=True)
    if bars := _plain(data, "memory", "bytes"):
        found["memory.svg"] = pictures.bars("Memory", {CASES["memory"].text: bars}, lambda value: f"{value:,.0f}")
    return found


def _rows(data: Data, case: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if case not in data.void:
        for label, row in data.results.get(case, {}).items():
            if label != CONTROL and row["rounds"]:
                yield label, row


def _beside_asyncio(data: Data, case: str) -> list[Bar]:
    figure = CASES[case].figure
    return [
        Bar(label, ratio.median, ratio.low, ratio.high)
        for label, row in _rows(data, case)
        if label not in (BARE, *loops.NEIGHBOURS) and (ratio := row["x"].get(figure))
    ]


def _plain(data: Data, case: str, name: str) -> list[Bar]:
    return [Bar(label, row[name], row[name], row[name]) for label, row in _rows(data, case) if name in row]


def _latencies(data: Data, case: str) -> dict[str, list[tuple[float, float]]]:
    return {label: row["curve"] for label, row in _rows(data, case) if "curve" in row}


def text(runs: Sequence[dict[str, Any]], data: Data, drawings: Sequence[str]) -> str:
    parts = [_INTRODUCTION, _targets(data), _losses(data)]
    parts += [table for table in (_writes(data), _threads(data), _scale(data)) if table]
    if drawings:
        parts.append("## Pictures\n\n" + "\n\n".join(f"![{name[:-4]}]({PICTURES}/{name})" for name in drawings))
    for family, names in FAMILIES.items():
        if tables := [_case(name, data) for name in names if name in data.results]:
            parts += [f"## {family.capitalize()}", *tables]
    if data.instructions:
        parts.append(f"## Instructions\n\n{callgrind.show(data.instructions).strip()}")
    parts.append(_provenance(runs))
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """# Results

Written by `tools/dev bench --report`, from the JSON that `tools/dev bench --json` writes; nothing here was written by
hand. "Times asyncio" is the median over the rounds of how many times as good as asyncio a loop is, with its 95 %
bootstrap interval; above 1 it is better. "asyncio (A/A)" is asyncio a second time: where it strays from itself, the
case is void and says nothing. Times are from the instant a request was due where requests come at a rate, else from its
sending. LIMIT marks rows in which the client was busy for more than 85 % of its core, and so may be what was measured.
The column "user + system" shows processor time of the server alone."""


def _case(name: str, data: Data) -> str:
    void = f"VOID: {data.void[name]}\n\n" if name in data.void else ""
    table = report.case_table(CASES[name], data.results[name], padded=False)
    return f"### {name}\n\n{CASES[name].text}\n\n{void}{table}"


def _targets(data: Data) -> str:
    # Long texts: such a table is for reading as it is drawn.
    lines = ["| case | target | verdict | measured |", "| --- | --- | --- | --- |"]
    for target in targets.TARGETS:
        found = targets.verdict(target, data)
        measured = found.measured.replace("; ", "<br>")
        lines.append(f"| {target.text} | {target.must} | {found.word} | {measured} |")
    table = "\n".join(lines)
    return f"""## Targets

"Ahead" means a median of at least 1.0 beside every other loop, with the lower bound of its interval at 0.97 or above,
and fewer instructions in its own library where they were counted. "floor" means: not reached, but within 3 % of the
same work done in C or by CPython's own functions alone.

{table}"""


def _losses(data: Data) -> str:
    lost = list(targets.losses(data))
    if not lost:
        return "## Where uvpy is behind\n\nNowhere, in what was measured."
    rows = [(case, label, f"{r.median:.2f}", f"{r.low:.2f}-{r.high:.2f}") for case, label, r in lost]
    table = report.table(("case", "behind", "uvpy is so many times as good", "95 %"), rows, padded=False)
    return f"## Where uvpy is behind\n\n{table}"


def _summary(title: str, data: Data, names: Sequence[str], cell: Callable[[dict[str, Any]], str], about: str) -> str:
    """A table of several cases, one a line, with a column for each that has played any of them, neighbours left out.
    Empty where none was played.
    """
    rows = {name: dict(_rows(data, name)) for name in names}
    labels = [
        label
        for label in loops.CONTENDERS
        if label not in loops.NEIGHBOURS and any(label in played for played in rows.values())
    ]
    if not labels:
        return ""

    def shown(name: str, label: str) -> str:
        if name in data.void:
            return "void"
        try:
            return cell(rows[name][label]) if label in rows[name] else ""
        except KeyError:
            return ""  # it has no such figure

    lines = [(name, *(shown(name, label) for label in labels)) for name in names if name in data.results]
    return f"## {title}\n\n{about}\n\n{report.table(('case', *labels), lines, padded=False)}"


def _writes(data: Data) -> str:
    names = ["tcp_echo_1_t", *FAMILIES["writes"]]
    about = """The server's system calls for an answer, and how often the client had to be woken for it: it sleeps
where nothing has come. writes1 to writes5 answer 1 KiB in so many writes, pipelined16 has 16 requests on their way and
a write for each; the last number is that of the connections."""
    return _summary("Writes", data, names, lambda row: f"{row['calls']:.2f}, {row['wakeups']:.2f}", about)


def _threads(data: Data) -> str:
    names = [f"convoy_{which}" for which in ("20", "500", "2_threads", "4_threads", "closed_1", "closed_10")]
    about = """How fast the busy threads are, in all, beside the loop under load: the share of what they are beside the
idle loop. One thread where the case's name does not say how many."""
    return _summary("Busy threads", data, names, lambda row: f"{row['busy']:.0%}", about)


def _scale(data: Data) -> str:
    connections = targets.numbered("tcp_echo_", "_t")
    about = (
        "Processor time of an operation, in microseconds: it should not grow with the number of connections or timers."
    )
    return _summary(
        "Scale", data, [*connections, *targets.TIMERS, *targets.FIRED], lambda row: f"{row['cpu'] * 1e6:.2f}", about
    )


def _provenance(runs: Sequence[dict[str, Any]]) -> str:
    parts = ["## The runs"]
    for run in runs:
        machine = ", ".join(f"{name} {value}" for name, value in run["machine"].items())
        versions = "; ".join(f"{label}: {version or 'not there'}" for label, version in run["versions"].items())
        arguments = " ".join(word for word in run["arguments"] if "/" not in word)
        failures = "".join(f"\n- failed: {failure}" for failure in sorted(set(run.get("failures", []))))
        parts.append(f"{run['date']}, `{arguments}`, seed {run['seed']}\n\n- {machine}\n- {versions}{failures}")
    return "\n\n".join(parts)


def write(runs: Sequence[dict[str, Any]], folder: Path = HERE) -> None:
    data = merged(runs)
    drawings = drawn(data)
    (folder / PICTURES).mkdir(exist_ok=True)
    for old in (folder / PICTURES).glob("*.svg"):
        if old.name not in drawings:
            old.unlink()
    for name, drawing in drawings.items():
        (folder / PICTURES / name).write_text(drawing)
    (folder / NAME).write_text(text(runs, data, list(drawings)))
    print(f"wrote {NAME} and {len(drawings)} pictures")
