"""Takes the samples. In a round each case is played on every loop by fresh processes, side by side: they take turns
for some hundredths of a second each, there and back (ABBA), so that a noisy neighbour meets them all.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import loops
import workloads
from players import Failed, Player, Told


class Times(NamedTuple):
    """Seconds: a player's turn, and the laps of a case in a round, of which there are at least so many (even)."""

    micro: float
    echo: float
    micro_case: float
    echo_case: float
    laps: int


FULL = Times(micro=0.01, echo=0.05, micro_case=1.5, echo_case=3.0, laps=4)
QUICK = Times(micro=0.01, echo=0.03, micro_case=0.3, echo_case=0.7, laps=2)


class Sample(NamedTuple):
    """A player's turns in a round, lap by lap; those of the others in the same lap are its neighbours in time."""

    round: int
    case: str
    label: str
    loop: str
    slices: list[Told]
    error: str | None = None


class Plan(NamedTuple):
    rounds: int
    times: Times
    cases: list[str]
    labels: list[str]
    seed: int
    load: Path | None
    """The compiled load.c, where an echo case is among the cases."""
    pin: bool
    within: float
    """Seconds; a case that would not be through by then is left out."""


def play(plan: Plan, show: Callable[[str], None]) -> list[Sample]:
    chance = random.Random(plan.seed)
    samples: list[Sample] = []
    began = time.monotonic()
    longest = dict.fromkeys(plan.cases, 0.0)
    for number in range(plan.rounds):
        if min(longest.values()) + time.monotonic() - began > plan.within:
            show(f"no time for more than {number} rounds")
            break
        for case in chance.sample(plan.cases, len(plan.cases)):
            case_began = time.monotonic() - began
            if case_began + longest[case] > plan.within:
                show(f"no time for {case} in round {number + 1}")
                continue
            order = chance.sample(plan.labels, len(plan.labels))
            for sample in _case(number, case, order, plan):
                samples.append(sample)
                if sample.error:
                    show(f"FAILED: {case} on {sample.label}: {sample.error}")
            longest[case] = max(longest[case], time.monotonic() - began - case_began)
        show(f"[{time.monotonic() - began:6.1f}s] round {number + 1} of {plan.rounds}")
    return samples


def _case(number: int, case: str, order: list[str], plan: Plan) -> list[Sample]:
    players: dict[str, Player] = {}
    slices: dict[str, list[Told]] = {label: [] for label in order}
    errors: dict[str, str] = {}

    def each(action: Callable[[str, Player], object], labels: list[str]) -> None:
        """Does it with those that have not failed yet."""
        for label in labels:
            if label not in errors:
                try:
                    action(label, players[label])
                except Failed as failed:
                    errors[label] = str(failed)

    echo = case in workloads.ECHO
    turn = plan.times.echo if echo else plan.times.micro
    with contextlib.ExitStack() as stack:
        for label in order:
            players[label] = Player(case, loops.MODULES[label], plan.load, plan.pin)
            stack.callback(players[label].close)
        each(lambda _, player: player.ready(), order)
        if echo:
            each(lambda _, player: player.slice(2 * turn), order)  # warm-up
        end = time.monotonic() + (plan.times.echo_case if echo else plan.times.micro_case)
        laps = 0
        while laps < plan.times.laps or laps % 2 or time.monotonic() < end:
            each(lambda label, player: slices[label].append(player.slice(turn)), order[:: -1 if laps % 2 else 1])
            laps += 1
        each(lambda _, player: player.end(), order)
    return [
        Sample(number, case, label, players[label].loop, slices[label], errors.get(label)) for label in sorted(order)
    ]
