"""Timers: making and cancelling, firing, and how late they fire."""

from __future__ import annotations

import time
from collections.abc import Callable

from cases.kinds import TURN, Case, Loop, Micro, in_turns, nothing

_waiting: list[object] = []


def _cancel(loop: Loop, size: int) -> None:
    def operations(count: int) -> None:
        call_later = loop.call_later
        for _ in range(count):
            call_later(60.0, nothing).cancel()

    in_turns(loop, size, operations)


def _cancel_among(waiting: int) -> Callable[[Loop, int], None]:
    def run(loop: Loop, size: int) -> None:
        if not _waiting:
            _waiting.extend(loop.call_later(3600.0 + number * 7919 % waiting, nothing) for number in range(waiting))
        _cancel(loop, size)

    return run


def _fire(loop: Loop, size: int) -> None:
    left = size

    def fire() -> None:
        nonlocal left
        left -= 1
        if not left:
            loop.stop()

    def start() -> None:
        call_later = loop.call_later
        for number in range(size):
            # Spread over 0.1 s in an order that is neither rising nor falling (7919 is prime).
            call_later(number * 7919 % size / size * 0.1, fire)

    loop.call_soon(start)
    loop.run_forever()


def _late(delay: float) -> Callable[[Loop, int], list[int]]:
    def run(loop: Loop, size: int) -> list[int]:
        times: list[int] = []

        def fired(due: int) -> None:
            times.append(abs(time.monotonic_ns() - due))  # some fire too early
            if len(times) == size:
                loop.stop()
            else:
                start()

        def start() -> None:
            loop.call_later(delay, fired, time.monotonic_ns() + round(delay * 1e9))

        loop.call_soon(start)
        loop.run_forever()
        return times

    return run


CASES: dict[str, Case] = {
    "call_later_cancel": Micro(text=f"call_later and cancel, {TURN:,} a turn", run=_cancel, size=5_000, counted=5_000),
    "call_later_among_10": Micro(text="the same with 10 timers waiting", run=_cancel_among(10), size=5_000),
    "call_later_among_1000": Micro(text="the same with 1,000", run=_cancel_among(1_000), size=5_000),
    "call_later_among": Micro(
        text="the same with 100,000 timers waiting", run=_cancel_among(100_000), size=5_000, counted=5_000
    ),
    "call_later_among_million": Micro(
        text="the same with 1,000,000", run=_cancel_among(1_000_000), size=5_000, solo=True
    ),
    "timers": Micro(
        text="100,000 timers made and fired, due within 0.1 s", run=_fire, size=100_000, counted=5_000, turn=0.01
    ),
    "late_100us": Micro(
        text="how far from its time a timer of 100 us fires", run=_late(1e-4), size=50, figure="p50", turn=0.1
    ),
    "late_1ms": Micro(
        text="how far from its time a timer of 1 ms fires", run=_late(1e-3), size=20, figure="p50", turn=0.15
    ),
}
