"""Takes the samples. In a round each case is played by all its contenders in fresh processes, side by side: they take
turns of some hundredths of a second each, there and back (ABBA), so that a noisy neighbour meets them all. The players
of a solo case are there one after the other, in a new order each round.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import cases
import players
import stats
from cases import CASES, Load, Memory
from native import Failed
from players import Player, Told

CALLS = 0.05
"""Seconds in which system calls are counted, once, in the first round."""


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
    cases: list[str]
    labels: list[str]
    seed: int
    pin: bool
    within: float
    """Seconds; a case that would not be through by then is left out."""
    env: Mapping[str, str]
    """What measured processes are told besides: the ports of services."""


def play(plan: Plan, show: Callable[[str], None]) -> list[Sample]:
    chance = random.Random(plan.seed)
    samples: list[Sample] = []
    began = time.monotonic()
    longest = dict.fromkeys(plan.cases, 0.0)
    rates: dict[str, float] = {}
    for number in range(plan.rounds):
        if min(longest.values()) + time.monotonic() - began > plan.within:
            show(f"no time for more than {number} rounds")
            break
        for case in chance.sample(plan.cases, len(plan.cases)):
            case_began = time.monotonic() - began
            if case_began + longest[case] > plan.within:
                show(f"no time for {case} in round {number + 1}")
                continue
            there = cases.labels(CASES[case], plan.labels)
            played = _case(number, case, chance.sample(there, len(there)), plan, rates)
            for sample in played:
                samples.append(sample)
                if sample.error:
                    show(f"FAILED: {case} on {sample.label}: {sample.error}")
            taken = time.monotonic() - began - case_began
            longest[case] = max(longest[case], taken)
            show(f"[{time.monotonic() - began:6.1f}s] round {number + 1} of {plan.rounds}: {case}, {taken:.1f} s")
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
