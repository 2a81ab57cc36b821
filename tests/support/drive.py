"""Driving a loop: single turns, whole coroutines, waiting for a condition, other threads."""

import asyncio
import contextlib
import threading
import time

LIMIT = 10.0  # seconds for what should take milliseconds


def run(loop, coro):
    """Run a coroutine on a loop, with a limit; the exceptions are the coroutine's own."""

    async def limited():
        async with asyncio.timeout(20):
            return await coro

    return loop.run_until_complete(limited())


def turn(loop, times=1):
    """Run exactly so many iterations of a loop that is not running."""
    for _ in range(times):
        loop.call_soon(loop.stop)
        loop.run_forever()


def turn_until(loop, condition, limit=LIMIT):
    """Run iterations of a loop that is not running until `condition()` is true."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "what was waited for did not happen"
        turn(loop)


def run_until_stopped(loop, limit=LIMIT):
    """run_forever() that fails instead of hanging when nobody stops it."""
    late = []
    guard = loop.call_later(limit, lambda: (late.append(1), loop.stop()))
    try:
        return loop.run_forever()
    finally:
        guard.cancel()
        assert not late, "nobody stopped the loop"


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def eventually(condition, limit=LIMIT):
    """Let the loop run until `condition()` is true; its value."""
    end = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < end, "what was waited for did not happen"
        await asyncio.sleep(0.001)
    return value


def in_thread(fn, *args):
    """Call fn(*args) in a thread, wait for it, and return its result or raise its exception."""
    return start_thread(fn, *args)()


def start_thread(fn, *args):
    """Start fn(*args) in a thread; calling what is returned joins it and gives the result or raises the exception."""
    box = {}

    def work():
        try:
            box["result"] = fn(*args)
        except BaseException as exc:
            box["exc"] = exc

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def join():
        thread.join(LIMIT)
        assert not thread.is_alive(), "the thread did not end"
        if "exc" in box:
            raise box["exc"]
        return box.get("result")

    return join


@contextlib.contextmanager
def cpu_below(seconds):
    """The body takes less than so much processor time: it does not spin."""
    start = time.process_time()
    yield
    used = time.process_time() - start
    assert used < seconds, f"{used:.3f} s of processor time: it spins"
