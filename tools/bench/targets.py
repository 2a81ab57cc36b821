"""What uvpy must reach, and whether it has: each target is a line of text and the checks that decide it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import loops
from cases import CASES, Micro
from loops import BARE, BAREST, BAREST_FASTNET, BASE, CONTROL, FLOOR, FLOORS, OURS
from pictures import time_text
from stats import Ratio

LEVEL = 0.97
"""From this share on one is as good as another; within so much of the floor it is reached."""

FLAT = 1.15
"""More than so many times as dear is not flat."""


def numbered(head: str, tail: str = "") -> list[str]:
    """The cases that have but a number between the two, by that number."""
    found = ((name, name.removeprefix(head).removesuffix(tail)) for name in CASES if name.startswith(head))
    return sorted(
        (n for n, number in found if n == head + number + tail and number.isdigit()), key=lambda n: (len(n), n)
    )


CONNECTIONS = [name for name in numbered("tcp_echo_", "_t") if name != "tcp_echo_1_t"]
TIMERS = (
    "call_later_cancel",
    *("call_later_among_10", "call_later_among_1000", "call_later_among", "call_later_among_million"),
)
FIRED = numbered("timers_")
"""The same with more and more connections, with more and more timers waiting, and with more that fire."""


@dataclass
class Data:
    """What was measured."""

    results: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    void: dict[str, str] = field(default_factory=dict)
    instructions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def row(self, case: str, label: str = OURS) -> dict[str, Any] | None:
        row = self.results.get(case, {}).get(label)
        return row if row and row["rounds"] else None

    def against(self, case: str, other: str, ours: str = OURS) -> Ratio | None:
        row = self.row(case, ours)
        found: Ratio | None = row["against"].get(other) if row else None
        return found

    def own(self, case: str, label: str) -> float | None:
        return self._counted(case, label, "own")

    def all(self, case: str, label: str) -> float | None:
        return self._counted(case, label, "all")

    def _counted(self, case: str, label: str, which: str) -> float | None:
        row = self.instructions.get(case, {}).get(label)
        found: float | None = row[which] if isinstance(row, dict) else None
        return found


class Check(NamedTuple):
    case: str
    """Whose floor may excuse it; empty where none may."""
    ok: bool | None
    """None: not measured."""
    text: str
    ours: str = OURS
    """Which of ours was judged."""
    at_floor: bool | None = None
    """Where that is not for the case's ratio to a floor to say."""
    figure: str = ""
    """By which the floor may excuse it, where that is not the case's own."""


Checks = Callable[[Data], Iterator[Check]]


class Target(NamedTuple):
    text: str
    must: str
    checks: tuple[Checks, ...]


class Verdict(NamedTuple):
    word: str
    """met, floor, missed, void, or not measured."""
    measured: str


def verdict(target: Target, data: Data) -> Verdict:
    checks = [check for make in target.checks for check in make(data)]
    text = "; ".join(check.text for check in checks)
    if void := sorted({check.case for check in checks if check.case in data.void}):
        return Verdict("void", f"{text} (void: {', '.join(void)})")
    failed = [check for check in checks if check.ok is False]
    if not all(_at_floor(check, data) for check in failed):
        return Verdict("missed", text)
    if any(check.ok is None for check in checks):
        return Verdict("not measured", text)
    return Verdict("floor" if failed else "met", text)


def _at_floor(check: Check, data: Data) -> bool:
    if check.at_floor is not None:
        return check.at_floor
    if check.figure:
        ours, floor = data.row(check.case), data.row(check.case, FLOOR)
        return bool(ours and floor and _as_good(check.figure, ours[check.figure], floor[check.figure]))
    floors = (FLOOR, BARE, BAREST) if check.ours == OURS else (BAREST_FASTNET,)
    found = [data.against(check.case, floor, check.ours) for floor in floors]
    return any(ratio and ratio.median >= LEVEL for ratio in found)


def _as_good(figure: str, ours: float, other: float) -> bool:
    """More of a rate or of a thread's speed, less of a time."""
    return ours >= LEVEL * other if figure in ("rate", "busy") else LEVEL * ours <= other


def peers(data: Data, case: str) -> list[str]:
    """The other loops that have played a case."""
    return [label for label in loops.LOOPS if label not in (OURS, CONTROL) and data.row(case, label)]


def ahead(case: str, counted: str = "") -> Checks:
    """Of every other loop; and with fewer instructions in its own library, where they are counted (`counted` or the
    case itself).
    """

    def checks(data: Data) -> Iterator[Check]:
        ratios = {label: ratio for label in peers(data, case) if (ratio := data.against(case, label))}
        if not ratios:
            yield Check(case, None, f"{case}: not measured")
            return
        nearest = min(ratios, key=lambda label: ratios[label].median)
        behind = [label for label, ratio in ratios.items() if ratio.median < 1 or ratio.low < LEVEL]
        found = ratios[nearest]
        text = f"{case}: {found.median:.2f} ({found.low:.2f}-{found.high:.2f}) of {nearest}"
        if data.instructions.get(counted or case):
            yield Check(case, not behind, text)
            yield from fewer(counted or case)(data)
        else:
            yield Check(case, not behind, f"{text}, instructions not counted")

    return checks


def fewer(case: str) -> Checks:
    """Instructions an operation in its own library than any other has."""

    def checks(data: Data) -> Iterator[Check]:
        ours = data.own(case, OURS)
        others = {label: own for label in loops.LOOPS if label != OURS and (own := data.own(case, label)) is not None}
        if ours is None or not others:
            yield Check("", None, f"{case}: instructions not counted")
            return
        best = min(others, key=lambda label: others[label])
        yield Check("", ours <= others[best], f"{case}: {ours:,.0f} own instructions, {best} {others[best]:,.0f}")

    return checks


def near_c(case: str, times: float) -> Checks:
    """All instructions of the process, less CPython's for the protocol's two calls, beside all of the C program's."""

    def checks(data: Data) -> Iterator[Check]:
        ours, floor, calls = data.all(case, OURS), data.all(case, FLOOR), data.all(case, BARE)
        if ours is None or floor is None or calls is None:
            yield Check("", None, f"{case}: instructions not counted beside {FLOOR} and {BARE}")
            return
        text = f"{case}: {ours:,.0f} instructions, {calls:,.0f} of them the two calls', {FLOOR} {floor:,.0f}"
        waiting = data.all(f"{case}_waiting", BARE)
        if waiting is not None:
            text += f", with what CPython does for a request {floor + waiting:,.0f}"
        at_floor = waiting is not None and ours * LEVEL <= floor + waiting
        yield Check("", ours - calls <= times * floor, text, at_floor=at_floor)

    return checks


def level(case: str) -> Checks:
    """With each other loop that there is."""

    def checks(data: Data) -> Iterator[Check]:
        others = peers(data, case)
        for label in others:
            yield from against(case, label, LEVEL)(data)
        if not others:
            yield Check(case, None, f"{case}: not measured")

    return checks


def against(
    case: str, other: str, least: float, ours: str = OURS, figure: str = "", *, may_lack: bool = False
) -> Checks:
    """At least so many times as good as another; by the case's figure, or beside asyncio by any."""

    def checks(data: Data) -> Iterator[Check]:
        if may_lack and not data.row(case, other):
            return
        row = data.row(case, ours)
        ratio = row["x"].get(figure) if row and figure else data.against(case, other, ours)
        by = f" by {figure}" if figure else ""
        name = case if ours == OURS else f"{case}, {ours}"
        if ratio is None:
            yield Check(case, None, f"{name}: not measured beside {other}{by}", ours)
        else:
            yield Check(case, ratio.median >= least, f"{name}: {ratio.median:.2f} of {other}{by}", ours)

    return checks


def flat(first: str, *others: str) -> Checks:
    """An operation of the others costs at most 15 % more than one of the first, or its cost grows as a floor's does."""

    def growth(data: Data, case: str, label: str) -> float | None:
        # What is timed by the wall is spent in other processes, too.
        figure = CASES[case].figure if isinstance(CASES[case], Micro) else "cpu"
        rows = [data.row(name, label) for name in (first, case)]
        if not all(row and figure in row for row in rows):
            return None
        before, after = (row[figure] for row in rows if row)
        return float(before / after if figure == "rate" else after / before)

    def checks(data: Data) -> Iterator[Check]:
        yield Check(first, True if data.row(first) else None, f"beside {first}")
        for case in others:
            ours = growth(data, case, OURS)
            if ours is None:
                yield Check(case, None, f"{case}: not measured beside {first}")
                continue
            floors = {label: found for label in FLOORS if (found := growth(data, case, label))}
            said = "".join(f", {label} {found:.2f}" for label, found in floors.items())
            at_floor = any(ours <= found / LEVEL for found in floors.values())
            yield Check(case, ours <= FLAT, f"{case}: {ours:.2f} times as dear{said}", at_floor=at_floor)

    return checks


def at_least(case: str, name: str, least: float, show: Callable[[float], str], figure: str = "") -> Checks:
    return _bounded(case, name, lambda value: value >= least, show, figure)


def at_most(case: str, name: str, most: float, show: Callable[[float], str]) -> Checks:
    return _bounded(case, name, lambda value: value <= most, show)


def _bounded(
    case: str, name: str, good: Callable[[float], bool], show: Callable[[float], str], figure: str = ""
) -> Checks:
    """A figure by itself; `figure` where the floor's may excuse it."""

    def checks(data: Data) -> Iterator[Check]:
        row = data.row(case)
        if row is None or name not in row:
            yield Check(case, None, f"{case}: not measured")
        else:
            yield Check(case, good(row[name]), f"{case}: {name} {show(row[name])}", figure=figure)

    return checks


def new_loop(data: Data) -> Iterator[Check]:
    rows = [data.row("new_loop", label) for label in (OURS, FLOOR, BASE)]
    if not all(rows):
        yield Check("new_loop", None, "new_loop: not measured")
        return
    ours, floor, base = (row["cpu"] * 1e6 for row in rows if row)
    text = f"new_loop: {ours:.1f} us; C {floor:.1f} us, asyncio {base:.1f} us"
    yield Check("new_loop", ours <= floor + base, text)


CONNECT = 1.15
"""So much of what bare sockets cost may a connection that is made and closed, besides asyncio's Python for it."""


def connect_close(data: Data) -> Iterator[Check]:
    rows = [
        data.row("connect_close", OURS),
        data.row("connect_close", BARE),
        data.row("connect_python", BASE),
    ]
    if not all(rows):
        yield Check("connect_close", None, "connect_close: not measured beside bare sockets and connect_python")
        return
    ours, bare, python = (row["cpu"] * 1e6 for row in rows if row)
    text = f"connect_close: {ours:.1f} us; bare sockets {bare:.1f} us, create_connection's Python {python:.1f} us"
    yield Check("", ours <= CONNECT * bare + python, text)


def convoy(case: str) -> tuple[Checks, ...]:
    return (
        _bounded(case, "p50", lambda value: value <= 0.3e-3, time_text, "p50"),
        _bounded(case, "p99", lambda value: value <= 1e-3, time_text, "p99"),
        at_least(case, "busy", 0.95, "{:.0%}".format, "busy"),
    )


def _at_rate(server: str) -> tuple[Checks, ...]:
    return tuple(
        against(f"{server}_at_{percent}", other, 1.0, may_lack=other != BASE)
        for percent in (50, 80)
        for other in (BASE, "zuvloop")
    )


def _all(make: Callable[[str], Checks], *names: str) -> tuple[Checks, ...]:
    return tuple(make(name) for name in names)


_HTTP = tuple(f"{server}_{n}" for server in ("http_raw", "uvicorn", "aiohttp") for n in (8, 200))

TARGETS = (
    Target(
        "TCP echo, Protocol, 1 KiB, 10 connections, malloc tuned",
        "ahead; instructions without CPython's two calls <= 1.5 times C's",
        (ahead("tcp_echo_10_t", "tcp_echo"), near_c("tcp_echo", 1.5)),
    ),
    Target("the same, 200 connections", "ahead", (ahead("tcp_echo_200_t", "tcp_echo"),)),
    Target(
        "the same, 10 and 100 KiB",
        ">= 0.97 of C",
        _all(lambda name: against(name, FLOOR, 0.97), "tcp_echo_10k_t", "tcp_echo_100k_t"),
    ),
    Target("BufferedProtocol, 1 KiB, malloc tuned", "ahead", (ahead("buffered_echo_t", "tcp_echo_buffered"),)),
    Target("streams, 1 KiB, malloc tuned", ">= 1.4 times asyncio", (against("streams_echo_t", BASE, 1.4),)),
    Target(
        "sock_recv and sock_sendall, 1 KiB, plain and malloc tuned",
        ">= 2.6 and >= 2.4 times asyncio",
        (against("sock_echo", BASE, 2.6), against("sock_echo_t", BASE, 2.4)),
    ),
    Target("TLS 1.3, 1 KiB, malloc tuned", ">= 1.5 times asyncio", (against("tls_echo_t", BASE, 1.5),)),
    Target(
        "the same with aiofastnet on our loop",
        ">= 2.3 times asyncio",
        (against("tls_echo_t", BASE, 2.3, ours="uvpy + aiofastnet"),),
    ),
    Target(
        "beside one busy thread, 20 and 500 requests/s",
        "p50 <= 0.3 ms, p99 <= 1 ms, thread at >= 95 %",
        (*convoy("convoy_20"), *convoy("convoy_500")),
    ),
    Target(
        "the same, pinned to one core",
        "the same",
        (*convoy("convoy_20_pinned"), *convoy("convoy_500_pinned")),
    ),
    Target(
        "the same, closed loop, 1 and 10 connections",
        ">= 13,000 and >= 40,000 requests/s, thread at >= 40 %",
        tuple(
            check
            for name, rate in (("convoy_closed_1", 13_000), ("convoy_closed_10", 40_000))
            for check in (
                at_least(name, "rate", rate, "{:,.0f}".format, "rate"),
                at_least(name, "busy", 0.4, "{:.0%}".format, "busy"),
            )
        ),
    ),
    Target(
        "call_soon, burst and chain, and chain with 100 idle descriptors",
        "ahead",
        _all(ahead, "call_soon_burst", "call_soon_chain", "call_soon_chain_watched"),
    ),
    Target("call_soon_threadsafe from the loop's own thread", "ahead", (ahead("threadsafe_own"),)),
    Target(
        "round trips with another thread, pinned and free",
        "level with every loop",
        _all(level, "threadsafe_trip", "threadsafe_trip_free"),
    ),
    Target(
        "call_later and cancel; with 100,000 waiting; 100,000 firing",
        "ahead",
        _all(ahead, "call_later_cancel", "call_later_among", "timers"),
    ),
    Target(
        "how far timers of 100 us and 1 ms are off",
        "no farther than asyncio's",
        _all(lambda name: against(name, BASE, LEVEL), "late_100us", "late_1ms"),
    ),
    Target(
        "sleep(0), task spawn, futures, gather",
        "fewer own instructions than the best",
        _all(fewer, "sleep0", "task_spawn", "futures", "gather"),
    ),
    Target("run_in_executor round trip, pinned and free", "ahead", _all(ahead, "executor", "executor_free")),
    Target("getaddrinfo of a numeric host", "ahead", (ahead("getaddrinfo"),)),
    Target(
        "subprocess spawn and wait, also with 1 GiB",
        ">= 1.0 times asyncio; flat with memory",
        (*_all(lambda name: against(name, BASE, 1.0), "spawn", "spawn_big"), flat("spawn", "spawn_big")),
    ),
    Target("8 MiB through a child's pipes", "ahead", (ahead("child_pipes"),)),
    Target("UDP echo, and bulk one way", "ahead", (ahead("udp_echo", "udp_echo_one"), ahead("udp_bulk"))),
    Target(
        "connect and close",
        "<= 1.15 times bare sockets, plus create_connection's Python",
        (connect_close,),
    ),
    Target(
        "memory of an idle accepted connection", "<= 900 bytes", (at_most("memory", "bytes", 900, "{:,.0f}".format),)
    ),
    Target("a new loop, a no-op, close", "<= C's init and close, plus asyncio's own time", (new_loop,)),
    Target(
        "HTTP, 1 KiB, 8 and 200 connections, plain and malloc tuned",
        ">= 0.98 of zuvloop",
        tuple(against(f"{name}{t}", "zuvloop", 0.98) for name in _HTTP for t in ("", "_t")),
    ),
    *(
        Target(
            f"HTTP at 50 and 80 % of asyncio's most, {server}", "p99 below asyncio's and zuvloop's", _at_rate(server)
        )
        for server in ("http_raw", "uvicorn", "aiohttp")
    ),
    Target(
        "1 ms of Python in each of four executor threads",
        "rate and p99 no worse than asyncio's",
        (
            against("executor_threads", BASE, LEVEL, figure="rate"),
            against("executor_threads", BASE, LEVEL, figure="p99"),
        ),
    ),
    Target(
        "a request's cost, from 10 to 10,000 connections; a timer's, with 1,000,000 waiting",
        "at most 15 % more",
        (flat(*CONNECTIONS), flat(*TIMERS), *([flat(*FIRED)] if FIRED else [])),
    ),
)


def cases() -> set[str]:
    """Those that a target names."""
    return {check.case for target in TARGETS for make in target.checks for check in make(Data())} - {""}


def losses(data: Data) -> Iterator[tuple[str, str, Ratio]]:
    """Every case and loop that uvpy is behind of by the median, whether or not a target names it."""
    for case in (name for name in CASES if name in data.results and name not in data.void):
        for label in peers(data, case):
            if (ratio := data.against(case, label)) and ratio.median < 1:
                yield case, label, ratio
