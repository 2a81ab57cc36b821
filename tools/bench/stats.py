"""Medians of paired ratios, and how sure they are."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Ratio(NamedTuple):
    """A median of ratios, each taken within one round, and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float
    pairs: int


def ratio(pairs: Sequence[tuple[float, float]], resamples: int = 2000) -> Ratio | None:
    """The median of a / b over the pairs (a, b); None where there is no pair."""
    if not pairs:
        return None
    ratios = [a / b for a, b in pairs]
    chance = random.Random(0)  # the same samples give the same interval
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(resamples))
    tail = round(0.025 * resamples)
    return Ratio(statistics.median(ratios), medians[tail], medians[-tail - 1], len(ratios))
