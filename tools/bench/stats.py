"""Medians of paired ratios, and how sure they are."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Ratio(NamedTuple):
    """The median over the rounds of the ratio in each, and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float
    rounds: int


def ratio(rounds: Sequence[Sequence[tuple[float, float]]], resamples: int = 2000) -> Ratio | None:
    """Of pairs (a, b) that were measured next to each other, by round: a / b. None where there is no pair.

    Within a round the median of the pairs counts. The rounds are what is resampled: only they were started afresh, so
    only they are independent of each other.
    """
    ratios = [statistics.median(a / b for a, b in pairs) for pairs in rounds if pairs]
    if not ratios:
        return None
    chance = random.Random(0)  # the same samples give the same interval
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(resamples))
    tail = round(0.025 * resamples)
    return Ratio(statistics.median(ratios), medians[tail], medians[-tail - 1], len(ratios))
