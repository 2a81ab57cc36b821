"""Pictures of results, as SVG text: bars beside asyncio, curves of latency. All that they show comes from the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

COLOURS = {
    "asyncio": "#8a8f98",
    "uvloop": "#3b82c4",
    "rloop": "#d08c3c",
    "zuvloop": "#7d5fb2",
    "uvpy": "#2e9e5b",
}
OTHERS = ("#b0606a", "#5aa5a0", "#a3a04a", "#6f7fae", "#9b7a5b", "#c47fb0")
WIDTH = 760
BAR, GAP, LABEL, LEFT, RIGHT, TOP = 14, 16, 11, 210, 90, 44


class Bar(NamedTuple):
    label: str
    value: float
    low: float
    high: float


def colour(label: str, labels: Sequence[str]) -> str:
    return COLOURS.get(label) or OTHERS[[name for name in labels if name not in COLOURS].index(label) % len(OTHERS)]


def bars(
    title: str,
    groups: Mapping[str, Sequence[Bar]],
    show: Callable[[float], str],
    *,
    one: str = "",
    logarithmic: bool = False,
) -> str:
    """Horizontal bars, a group for each case; `one` names the line at 1, where there is to be one."""
    labels = list(dict.fromkeys(bar.label for group in groups.values() for bar in group))
    highest = max((bar.high for group in groups.values() for bar in group), default=1.0) or 1.0
    lowest = min((bar.value for group in groups.values() for bar in group if bar.value > 0), default=1.0)
    room = WIDTH - LEFT - RIGHT

    def x(value: float) -> float:
        if not logarithmic:
            return LEFT + room * value / highest
        floor, top = math.log10(lowest / 2), math.log10(highest)
        return LEFT + room * max(0.0, (math.log10(max(value, lowest / 2)) - floor) / (top - floor))

    parts: list[str] = []
    y = TOP
    for name, group in groups.items():
        parts.append(_text(8, y + LABEL, name, bold=True))
        y += BAR + 4
        for bar in group:
            middle = y + BAR / 2
            parts.append(_text(LEFT - 6, middle + 4, bar.label, anchor="end"))
            parts.append(_rect(LEFT, y, max(0.5, x(bar.value) - LEFT), BAR - 2, colour(bar.label, labels)))
            if bar.high > bar.low:
                parts.append(_line(x(bar.low), middle - 1, x(bar.high), middle - 1))
            parts.append(_text(x(max(bar.value, bar.high)) + 5, middle + 4, show(bar.value)))
            y += BAR + 2
        y += GAP
    if one:
        parts.append(_line(x(1), TOP - 6, x(1), y - GAP, dashed=True))
        parts.append(_text(x(1), TOP - 10, one, anchor="middle"))
    return _picture(title, y, parts)


def curves(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, under: str = "") -> str:
    """Percentiles (in percent) against seconds: each nine takes the same room, and so does each tenfold of time."""
    labels = list(lines)
    points = [point for line in lines.values() for point in line]
    height, bottom, top = 390, 340, TOP + 12
    left, right = 70, 150
    low = math.floor(math.log10(min((s for _, s in points if s > 0), default=1e-6)))
    high = math.ceil(math.log10(max((s for _, s in points), default=1.0)))
    high = max(high, low + 1)

    def nines(percent: float) -> float:
        return -math.log10(1 - percent / 100)

    start, end = nines(50), nines(99.99)

    def x(percent: float) -> float:
        return left + (WIDTH - left - right) * (nines(percent) - start) / (end - start)

    def y(seconds: float) -> float:
        return bottom - (bottom - top) * (math.log10(max(seconds, 10.0**low)) - low) / (high - low)

    parts = [_text(8, 36, under)]
    for exponent in range(low, high + 1):
        parts.append(_line(left, y(10.0**exponent), WIDTH - right, y(10.0**exponent), dashed=True))
        parts.append(_text(left - 6, y(10.0**exponent) + 4, time_text(10.0**exponent), anchor="end"))
    for percent in (50.0, 90.0, 99.0, 99.9, 99.99):
        parts.append(_text(x(percent), bottom + 18, f"p{percent:g}", anchor="middle"))
    for number, (label, line) in enumerate(lines.items()):
        path = " ".join(f"{x(percent):.1f},{y(seconds):.1f}" for percent, seconds in line)
        shade = colour(label, labels)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{shade}" stroke-width="2"/>')
        parts.append(_rect(WIDTH - right + 14, top + 18 * number, 10, 10, shade))
        parts.append(_text(WIDTH - right + 30, top + 18 * number + 9, label))
    return _picture(title, height, parts)


def time_text(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _picture(title: str, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" font-size="{LABEL}" fill="#222">'
    )
    back = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
    name = f'<text x="8" y="20" font-size="13" font-weight="bold">{escape(title)}</text>'
    return "\n".join((head, back, name, *parts, "</svg>\n"))


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False) -> str:
    style = 'stroke="#bbb" stroke-dasharray="3 3"' if dashed else 'stroke="#333"'
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'
