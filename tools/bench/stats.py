"""Medians of paired ratios, and how sure they are; histograms of times, and their percentiles."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
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


class Histogram:
    """How often each time was measured. Times are in nanoseconds; percentiles are told in seconds."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._counts: Counter[int] = Counter()
        self.add(pairs)

    @classmethod
    def of(cls, times: Iterable[int]) -> Histogram:
        """Of single times, to three digits, so that it stays small."""
        made = cls()
        made._counts.update(_rounded(time) for time in times)
        return made

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        for value, count in pairs:
            self._counts[value] += count

    def pairs(self) -> list[tuple[int, int]]:
        return sorted(self._counts.items())

    @property
    def count(self) -> int:
        return self._counts.total()

    def percentile(self, percent: float) -> float:
        """The smallest time that at least so many percent do not exceed."""
        pairs = self.pairs()
        if not pairs:
            raise ValueError("no times")
        # Rounded first: 99.9 % of 1000 is 999, whatever binary fractions make of it.
        rank = max(1, math.ceil(round(percent / 100 * self.count, 6)))
        running = itertools.accumulate(count for _, count in pairs)
        return next(value for (value, _), sum_ in zip(pairs, running, strict=True) if sum_ >= rank) / 1e9


def _rounded(time: int) -> int:
    digits = len(str(time)) - 3
    return round(time, -digits) if digits > 0 else time
