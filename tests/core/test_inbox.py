"""Other threads: call_soon_threadsafe from everywhere, wake-ups, executors, several loops at once."""

import asyncio
import collections
import concurrent.futures
import contextvars
import functools
import gc
import itertools
import queue
import socket
import sys
import threading
import time
import weakref

import pytest

from support.drive import LIMIT, cpu_below, eventually, in_thread, run, run_until_stopped, start_thread, turn


def test_a_thread_wakes_a_parked_loop(loop):
    """A loop that waits without any deadline is woken by each call from another thread, again and again."""
    got, calls = [], queue.SimpleQueue()

    def work():
        while (n := calls.get(timeout=LIMIT)) is not None:
            loop.call_soon_threadsafe(step, n)

    def step(n):
        got.append(n)
        calls.put(n + 1 if n < 1000 else None)
        if n == 1000:
            loop.stop()

    join = start_thread(work)
    loop.call_soon(calls.put, 0)
    loop.run_forever()
    join()
    assert got == list(range(1001))


def test_a_thread_wakes_a_loop_whatever_it_waits_for(loop):
    """With nothing, a reader, a connection beside it, and the reader alone again: each wait has another way to end."""
    reading, theirs = socket.socketpair()
    ours, peer = socket.socketpair()
    calls, got = queue.SimpleQueue(), []

    def work():
        while (what := calls.get(timeout=LIMIT)) is not None:
            loop.call_soon_threadsafe(woken.set_result, what)

    async def wait_for_the_thread(what):
        nonlocal woken
        for _ in range(20):
            woken = loop.create_future()
            loop.call_soon(calls.put, what)
            got.append(await asyncio.wait_for(woken, LIMIT))

    async def main():
        await wait_for_the_thread("nothing")
        loop.add_reader(reading, print)
        await wait_for_the_thread("a reader")
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        await wait_for_the_thread("a connection")
        transport.close()
        await wait_for_the_thread("its end")
        loop.remove_reader(reading)
        await wait_for_the_thread("nothing again")
        calls.put(None)

    woken = None
    join = start_thread(work)
    with reading, theirs, ours, peer:
        ours.setblocking(False)
        loop.run_until_complete(main())
    join()
    waits = ["nothing", "a reader", "a connection", "its end", "nothing again"]
    assert got == [what for what in waits for _ in range(20)]


@pytest.mark.parametrize("deadline", [None, 3600])
def test_a_call_wakes_the_loop_soon(loop, deadline):
    """The loop does not sleep on to its next timer."""
    if deadline:
        loop.call_later(deadline, print)
    times = queue.SimpleQueue()

    parked = threading.Event()

    def work():
        parked.wait(LIMIT)
        start = time.monotonic()
        loop.call_soon_threadsafe(lambda: (times.put(time.monotonic() - start), loop.stop()))

    join = start_thread(work)
    loop.call_later(0.01, parked.set)
    loop.run_forever()
    join()
    assert times.get_nowait() < 5


def test_each_thread_keeps_its_order(loop):
    """Six threads at once: nothing lost, nothing doubled, each one's calls in its own order."""
    per_thread, count = 3000, itertools.count(1)
    got = collections.defaultdict(list)

    def note(thread, i):
        got[thread].append(i)
        if next(count) == 6 * per_thread:
            loop.stop()

    def work(thread):
        for i in range(per_thread):
            loop.call_soon_threadsafe(note, thread, i)

    joins = [start_thread(work, t) for t in range(6)]
    run_until_stopped(loop)
    for join in joins:
        join()
    assert got == {t: list(range(per_thread)) for t in range(6)}


def test_the_loops_own_thread_shares_one_queue(loop):
    got = []

    def work(base):
        for i in range(10):
            (loop.call_soon_threadsafe if i % 3 else loop.call_soon)(got.append, base + i)

    loop.call_soon(work, 100)
    work(0)
    turn(loop, 2)
    assert got == [*range(10), *range(100, 110)]


def test_a_call_from_a_callback_runs_in_the_next_turn(loop):
    got = []
    loop.call_soon(lambda: (loop.call_soon_threadsafe(got.append, "safe"), loop.call_soon(got.append, "soon")))
    turn(loop)
    assert got == []
    turn(loop)
    assert got == ["safe", "soon"]


def test_calls_before_the_first_run_are_kept(loop):
    got = []
    for i in range(300):
        in_thread(loop.call_soon_threadsafe, got.append, i) if i % 10 == 0 else loop.call_soon_threadsafe(got.append, i)
    turn(loop, 2)
    assert got == list(range(300))


def test_calls_between_two_runs_are_kept(loop):
    got = []
    turn(loop)
    for round_ in range(3):
        in_thread(loop.call_soon_threadsafe, got.append, round_)
        if round_ == 1:
            turn(loop, 2)
    turn(loop, 2)
    assert got == [0, 1, 2]


def test_calls_made_while_a_callback_blocks(loop):
    got = []

    def block():
        joins = [start_thread(loop.call_soon_threadsafe, got.append, n) for n in range(5)]
        for join in joins:
            join()
        got.append("blocked")

    loop.call_soon(block)
    turn(loop, 2)
    assert got[0] == "blocked"
    assert sorted(got[1:]) == list(range(5))


def test_stop_from_a_thread_ends_a_parked_run(loop):
    parked = threading.Event()
    join = start_thread(lambda: (parked.wait(LIMIT), loop.call_soon_threadsafe(loop.stop)))
    loop.call_soon(parked.set)
    assert loop.run_forever() is None
    join()
    assert not loop.is_running()


def test_a_cancelled_call_never_runs(loop):
    got = []
    handles = [in_thread(loop.call_soon_threadsafe, got.append, i) for i in range(10)]
    for handle in handles[::2]:
        in_thread(handle.cancel)
    handles[1].cancel()
    turn(loop, 2)
    assert got == [3, 5, 7, 9]
    assert [h.cancelled() for h in handles] == [True, True] + [True, False] * 4


def test_cancelling_lets_go_of_the_arguments(loop):
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    handle = loop.call_soon_threadsafe(print, thing)
    del thing
    handle.cancel()
    assert alive() is None
    turn(loop)


def test_a_failing_call_is_reported(loop, errors):
    got = []

    def fail():
        raise KeyError("x")

    handle = in_thread(loop.call_soon_threadsafe, fail)
    in_thread(loop.call_soon_threadsafe, got.append, 1)
    turn(loop, 2)
    (context,) = errors.take()
    assert context["handle"] is handle
    assert isinstance(context["exception"], KeyError)
    assert got == [1]


def test_an_interrupt_in_a_threads_call_leaves_the_run(loop):
    def bad():
        raise KeyboardInterrupt

    got = []
    start_thread(loop.call_soon_threadsafe, bad)()
    start_thread(loop.call_soon_threadsafe, got.append, 1)()
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    turn(loop)
    assert got == [1]


def test_close_while_threads_call(loop):
    """Threads that call while the loop runs, stands still and is closed get RuntimeError in the end and nothing
    else.
    """
    ends, counts = queue.Queue(), itertools.count()

    def work():
        try:
            while True:
                loop.call_soon_threadsafe(next, counts)
        except RuntimeError as exc:
            ends.put(str(exc))

    joins = [start_thread(work) for _ in range(4)]
    for _ in range(5):
        run(loop, asyncio.sleep(0.005))
    loop.close()
    assert [ends.get(timeout=LIMIT) for _ in joins] == ["Event loop is closed"] * 4
    for join in joins:
        join()
    assert next(counts) > 4


def test_a_destructor_in_any_thread_may_call(loop):
    """Objects dropped by several threads schedule from their destructors, also from within a collection."""
    got = []

    class Dying:
        def __init__(self, n):
            self.n, self.me = n, self

        def __del__(self):
            loop.call_soon_threadsafe(got.append, self.n)

    def work(base):
        for i in range(50):
            Dying(base + i)
        gc.collect()

    joins = [start_thread(work, base) for base in (0, 50, 100)]
    for join in joins:
        join()
    gc.collect()
    turn(loop, 2)
    assert sorted(got) == list(range(150))


def test_threads_and_a_tiny_switch_interval(loop):
    """With threads switched as often as can be, ping-pong between loop and thread loses nothing."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        got, jobs = [], queue.SimpleQueue()

        def work():
            while (n := jobs.get()) is not None:
                loop.call_soon_threadsafe(pong, n)

        def pong(n):
            got.append(n)
            if n == 2000:
                jobs.put(None)
                loop.stop()
            else:
                jobs.put(n + 1)

        join = start_thread(work)
        jobs.put(0)
        run_until_stopped(loop)
        join()
        assert got == list(range(2001))
    finally:
        sys.setswitchinterval(before)


def test_an_idle_loop_sleeps_between_calls(loop):
    """Waking up leaves nothing behind that keeps the loop awake."""
    for _ in range(50):
        loop.call_soon_threadsafe(bool)
        in_thread(loop.call_soon_threadsafe, bool)
    turn(loop, 3)
    join = start_thread(lambda: [loop.call_soon_threadsafe(bool) for _ in range(100)])
    with cpu_below(0.15):
        run(loop, asyncio.sleep(0.5))
    join()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio waits only from 3.14 on")
def test_cancelling_from_a_thread_waits_for_the_running_callback(loop):
    started, ended, seen = threading.Event(), [], []

    def work():
        started.set()
        time.sleep(0.1)
        ended.append(1)

    def other():
        handle = loop.call_soon_threadsafe(work)
        started.wait(LIMIT)
        handle.cancel()
        seen.append(bool(ended))
        loop.call_soon_threadsafe(loop.stop)

    join = start_thread(other)
    loop.run_forever()
    join()
    assert seen == [True]


# ---- calls that should have been threadsafe


@pytest.mark.parametrize(
    "name", ["call_soon", "call_later", "cancel", "add_reader", "remove_reader", "add_writer", "stop"]
)
def test_calls_of_the_wrong_thread_take_effect(loop, sockets, name):
    """Made while the loop is parked, they are in force when it wakes, as in asyncio."""
    got, parked = [], threading.Event()
    a, b = sockets.pair()
    victim = loop.call_later(0.3 if name == "cancel" else 3600, got.append, "victim")

    def work():
        parked.wait(LIMIT)
        if name == "call_soon":
            loop.call_soon(got.append, "done")
        elif name == "call_later":
            loop.call_later(0.001, got.append, "done")
        elif name == "cancel":
            victim.cancel()
            got.append("done")
        elif name == "add_reader":
            loop.add_reader(a, lambda: (got.append("done"), loop.remove_reader(a)))
            b.send(b"!")
        elif name == "remove_reader":
            assert loop.remove_reader(b) is True
            a.send(b"!")
            got.append("done")
        elif name == "add_writer":
            loop.add_writer(a, lambda: (got.append("done"), loop.remove_writer(a)))
        else:
            loop.stop()
            got.append("done")
        loop.call_soon_threadsafe(loop.call_later, 0.4 if name == "cancel" else 0.02, loop.stop)

    if name == "remove_reader":
        loop.add_reader(b, got.append, "victim")
    join = start_thread(work)
    loop.call_later(0.005, parked.set)
    run_until_stopped(loop)
    join()
    victim.cancel()
    assert got[0] == "done"
    if name in ("cancel", "remove_reader"):
        assert got == ["done"]
    loop.remove_reader(a)
    loop.remove_reader(b)


# ---- several loops


def test_two_loops_call_each_other(new_loop):
    """Two loops in two threads play ping-pong, parked between the strokes."""
    one, two, got = new_loop(), new_loop(), []

    def stroke(here, there, n):
        got.append(n)
        if n < 600:
            there.call_soon_threadsafe(stroke, there, here, n + 1)
        else:
            there.call_soon_threadsafe(there.stop)
            here.stop()

    join = start_thread(two.run_forever)
    one.call_soon(stroke, one, two, 0)
    one.run_forever()
    join()
    assert got == list(range(601))


def test_loops_side_by_side(new_loop, errors):
    """Four loops in four threads, each with timers, tasks, an executor and threadsafe calls to itself."""

    async def main(n):
        loop = asyncio.get_running_loop()
        fut = loop.create_future()
        start_thread(loop.call_soon_threadsafe, fut.set_result, n)()
        values = await asyncio.gather(*(asyncio.sleep(0.001 * i, i) for i in range(20)))
        return sum(values) + await fut + await loop.run_in_executor(None, lambda: n)

    def work(n):
        loop = new_loop()
        try:
            return run(loop, main(n))
        finally:
            run(loop, loop.shutdown_default_executor())
            loop.close()

    joins = [start_thread(work, n) for n in range(4)]
    assert [join() for join in joins] == [190 + 2 * n for n in range(4)]


def test_a_loop_moves_from_thread_to_thread(loop):
    idents = []

    async def main():
        idents.append(threading.get_ident())
        await asyncio.sleep(0.001)

    for _ in range(3):
        in_thread(run, loop, main())
    run(loop, main())
    assert idents[-1] == threading.get_ident()
    in_thread(loop.close)


def test_a_running_loop_is_known_in_its_thread_only(loop):
    got = []

    def ask():
        got.append(in_thread(asyncio._get_running_loop))
        got.append(asyncio.get_running_loop())

    loop.call_soon(ask)
    turn(loop)
    assert got == [None, loop]
    assert asyncio._get_running_loop() is None


# ---- coroutines and executors


def test_run_coroutine_threadsafe(loop):
    cleaned = threading.Event()

    async def work(what):
        if what == "fail":
            raise KeyError("x")
        try:
            await asyncio.sleep(0 if what == "ok" else 3600)
        except asyncio.CancelledError:
            cleaned.set()
            raise
        return what

    join = start_thread(loop.run_forever)
    try:
        submit = functools.partial(asyncio.run_coroutine_threadsafe, loop=loop)
        assert submit(work("ok")).result(LIMIT) == "ok"
        with pytest.raises(KeyError):
            submit(work("fail")).result(LIMIT)
        futures = [submit(work("ok")) for _ in range(200)]
        assert [f.result(LIMIT) for f in futures] == ["ok"] * 200
        long = submit(work("long"))
        with pytest.raises(concurrent.futures.TimeoutError):
            long.result(0.02)
        long.cancel()
        assert cleaned.wait(LIMIT)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        join()


async def test_executor_results_come_back(loop):
    assert await asyncio.gather(*(loop.run_in_executor(None, lambda i=i: i * i) for i in range(200))) == [
        i * i for i in range(200)
    ]
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(None, lambda: 1 / 0)
    assert (await loop.run_in_executor(None, lambda: threading.current_thread().name)).startswith("asyncio")


async def test_the_loop_works_while_an_executor_blocks(loop):
    release, ticks = threading.Event(), []
    fut = loop.run_in_executor(None, release.wait, LIMIT)
    for i in range(20):
        await asyncio.sleep(0.001)
        ticks.append(i)
    assert not fut.done()
    release.set()
    assert await fut is True
    assert len(ticks) == 20


async def test_a_cancelled_executor_job(loop):
    """Cancelling the future does not stop the job, and its late result disturbs nobody."""
    release, ended = threading.Event(), threading.Event()
    fut = loop.run_in_executor(None, lambda: (release.wait(LIMIT), ended.set()))
    await asyncio.sleep(0.002)
    fut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fut
    release.set()
    await eventually(ended.is_set)


async def test_to_thread_carries_context_and_keywords(loop):
    var = contextvars.ContextVar("var", default=0)
    var.set(5)
    assert await asyncio.to_thread(lambda *, add: var.get() + add, add=2) == 7


async def test_an_executor_of_ones_own(loop):
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mine") as pool:
        assert (await loop.run_in_executor(pool, lambda: threading.current_thread().name)).startswith("mine")
        loop.set_default_executor(pool)
        assert (await loop.run_in_executor(None, lambda: threading.current_thread().name)).startswith("mine")


def test_only_thread_pools_may_be_the_default(loop):
    for wrong in (None, object(), concurrent.futures.Executor()):
        with pytest.raises(TypeError):
            loop.set_default_executor(wrong)


async def test_shutting_the_executor_down(loop):
    got = []
    fut = loop.run_in_executor(None, lambda: (time.sleep(0.05), got.append(1)))
    await loop.shutdown_default_executor()
    assert got == [1]
    await fut
    with pytest.raises(RuntimeError, match="shutdown"):
        loop.run_in_executor(None, print)


async def test_many_waiters_of_one_thread(loop):
    """Hundreds of futures completed by a thread in one burst all wake their waiters."""
    futures = [loop.create_future() for _ in range(500)]

    def work():
        for i, fut in enumerate(futures):
            loop.call_soon_threadsafe(fut.set_result, i)

    join = start_thread(work)
    assert await asyncio.gather(*futures) == list(range(500))
    join()
