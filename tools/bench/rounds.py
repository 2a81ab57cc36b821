"""Takes the samples. In a round each case is played by all its contenders in fresh processes, side by side: they take
turns of some hundredths of a second each, there and back (ABBA), so that a noisy neighbour meets them all. The players
of a solo case are there one after the other, in a new order each round.

The time goes first to the cases that a target names, until each has had its rounds, then to the others. What is kept
back and what is left goes to the cases that are void by then, as further rounds beside those they have had.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import cases
import players
import stats
from cases import CASES, Load, Memory
from native import Failed
from players import Player, Told

CALLS = 0.05
"""Seconds in which system calls are counted, once, in the first round."""

AGAIN = 0.15
"""The share of the time that is kept for cases which are void after their rounds."""
MOST = 3
"""So many times its rounds a case may have, however void it is."""


class Sample(NamedTuple):
    """A player's turns in a round, lap by lap; those of the others in the same lap are its neighbours in time."""

    round: int
    case: str
    label: str
    loop: str
    slices: list[Told]
    calls: Told
    histogram: list[tuple[int, int]]
    """The times of all turns."""
    error: str | None = None


class Plan(NamedTuple):
    rounds: int
    laps: int
    """Of a case in a round, an even number; half of it where a turn is long."""
    scale: float
    """Of the turns' lengths."""
    first: list[str]
    """The cases that come before the others."""
    others: list[str]
    labels: list[str]
    seed: int
    pin: bool
    within: float
    """Seconds for all of it; a case that would not be through by then is left out."""
    env: Mapping[str, str]
    """What measured processes are told besides: the ports of services."""


def play(plan: Plan, show: Callable[[str], None], strayed: Callable[[list[Sample]], Iterable[str]]) -> list[Sample]:
    """All samples; `strayed` says of those so far which cases are void."""
    chance = random.Random(plan.seed)
    samples: list[Sample] = []
    began = time.monotonic()
    had: Counter[str] = Counter()
    longest: dict[str, float] = {}
    rates: dict[str, float] = {}

    def play_case(case: str, until: float) -> bool:
        case_began = time.monotonic() - began
        if case_began + longest.get(case, 0.0) > until:
            show(f"no time for {case} in round {had[case] + 1}")
            return False
        there = cases.labels(CASES[case], plan.labels)
        for sample in _case(had[case], case, chance.sample(there, len(there)), plan, rates):
            samples.append(sample)
            if sample.error:
                show(f"FAILED: {case} on {sample.label}: {sample.error}")
        had[case] += 1
        taken = time.monotonic() - began - case_began
        longest[case] = max(longest.get(case, 0.0), taken)
        show(f"[{time.monotonic() - began:6.1f}s] round {had[case]} of {case}, {taken:.1f} s")
        return True

    for names in (plan.first, plan.others):
        for _ in range(plan.rounds):
            for case in chance.sample(names, len(names)):
                play_case(case, plan.within * (1 - AGAIN))
    known = [*plan.first, *plan.others]
    while void := [name for name in strayed(samples) if had[name] < MOST * plan.rounds]:
        show(f"once more, since they are void: {', '.join(void)}")
        void.sort(key=known.index)
        played = [play_case(case, plan.within) for case in void]
        if not any(played):
            break
    return samples


def _rate(case: str, plan: Plan, rates: dict[str, float]) -> float:
    """What is due in a second, 0 in a closed loop; the same in all rounds."""
    load = CASES[case]
    if not isinstance(load, Load) or not load.rate or load.rate >= 1.5:
        return 0.0
    if case not in rates:
        rates[case] = load.rate * players.most(case, plan.env, plan.pin)
    return rates[case]


def laps_of(case: cases.Case, plan: Plan) -> int:
    if isinstance(case, Memory):
        return 1
    return max(2, plan.laps // 4 * 2) if case.turn >= 0.3 else plan.laps


def _case(number: int, name: str, order: list[str], plan: Plan, rates: dict[str, float]) -> list[Sample]:
    try:
        rate = _rate(name, plan, rates)
    except Failed as failed:
        return [Sample(number, name, label, "", [], {}, [], f"asyncio's most: {failed}") for label in sorted(order)]
    groups = [[label] for label in order] if CASES[name].solo else [order]
    found = [sample for group in groups for sample in _group(number, name, group, plan, rate)]
    return sorted(found, key=lambda sample: sample.label)


def _group(number: int, name: str, order: list[str], plan: Plan, rate: float) -> list[Sample]:
    """Those that are there at the same time."""
    there: dict[str, Player] = {}
    slices: dict[str, list[Told]] = {label: [] for label in order}
    calls: dict[str, Told] = {}
    errors: dict[str, str] = {}

    def each(action: Callable[[str], object], labels: list[str]) -> None:
        """Does it with those that have not failed yet."""
        for label in labels:
            if label not in errors:
                try:
                    action(label)
                except Failed as failed:
                    errors[label] = str(failed)

    case = CASES[name]
    turn = case.turn * plan.scale
    laps = laps_of(case, plan)

    with contextlib.ExitStack() as stack:

        def begin(label: str) -> None:
            there[label] = players.player(name, label, plan.env, plan.pin, rate)
            stack.callback(there[label].close)

        each(begin, order)
        each(lambda label: there[label].ready(), order)
        if isinstance(case, Load) and not isinstance(case, Memory):
            each(lambda label: there[label].slice(min(0.3, turn)), order)  # warm-up; micro cases have had theirs
        for lap in range(laps):
            each(lambda label: slices[label].append(there[label].slice(turn)), order[:: -1 if lap % 2 else 1])
        if not number and not isinstance(case, Memory):
            each(lambda label: calls.update({label: there[label].calls(turn if case.solo else CALLS)}), order)
        each(lambda label: there[label].end(), order)
    return [
        Sample(
            number,
            name,
            label,
            there[label].loop if label in there else "",
            slices[label],
            calls.get(label, {}),
            _merged(slices[label]),
            errors.get(label),
        )
        for label in order
    ]


def _merged(slices: list[Told]) -> list[tuple[int, int]]:
    """The histograms of all turns as one, taken out of them."""
    times = stats.Histogram()
    for told in slices:
        times.add(map(tuple, told.pop("histogram", ())))
    return times.pairs()
