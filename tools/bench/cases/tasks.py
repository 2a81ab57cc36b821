"""Tasks and futures: mostly CPython's own work, which is why instructions of the loop's own library are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from cases.kinds import TURN, Case, Loop, Micro


def _running(body: Callable[[Loop, int], Coroutine[None, None, None]]) -> Callable[[Loop, int], None]:
    def run(loop: Loop, size: int) -> None:
        loop.run_until_complete(body(loop, size))

    return run


async def _noop() -> None:
    pass


async def _sleep(loop: Loop, size: int) -> None:
    for _ in range(size):
        await asyncio.sleep(0)


async def _spawn(loop: Loop, size: int) -> None:
    for _ in range(size):
        await loop.create_task(_noop())


async def _futures(loop: Loop, size: int) -> None:
    for _ in range(size):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


async def _gather(loop: Loop, size: int) -> None:
    for _ in range(max(1, size // TURN)):
        await asyncio.gather(*(_noop() for _ in range(TURN)))


async def _wait_for(loop: Loop, size: int) -> None:
    for _ in range(size):
        await asyncio.wait_for(asyncio.sleep(0), 60)


CASES: dict[str, Case] = {
    "sleep0": Micro(text="await asyncio.sleep(0)", run=_running(_sleep), size=2_000, counted=1_000),
    "task_spawn": Micro(text="a task made and awaited", run=_running(_spawn), size=1_000, counted=1_000),
    "futures": Micro(
        text="a future resolved by call_soon and awaited", run=_running(_futures), size=1_000, counted=1_000
    ),
    "gather": Micro(text=f"gather of {TURN:,} coroutines, for each", run=_running(_gather), size=TURN, counted=TURN),
    "wait_for": Micro(text="wait_for that never fires", run=_running(_wait_for), size=1_000, counted=500),
}
