"""Debug mode: checks of threads and callbacks, slow callbacks, source tracebacks, origins of coroutines."""

import asyncio
import logging
import re
import sys
import time

import pytest

from support.drive import in_thread, turn


def slow(seconds=0.12):
    time.sleep(seconds)


@pytest.fixture
def debug_loop(loop):
    loop.set_debug(True)
    return loop


def executing(log):
    """The reports of slow callbacks so far, and nothing else may be in the log."""
    records = log.take()
    assert all(r.levelno == logging.WARNING and r.getMessage().startswith("Executing ") for r in records), records
    return [r.getMessage() for r in records]


def calls(loop):
    """Each way to schedule, by name."""
    return {
        "call_soon": loop.call_soon,
        "call_soon_threadsafe": loop.call_soon_threadsafe,
        "call_later": lambda *a: loop.call_later(1, *a),
        "call_at": lambda *a: loop.call_at(1, *a),
    }


def test_debug_is_a_switch(loop):
    assert loop.get_debug() is False
    loop.set_debug(True)
    assert loop.get_debug() is True
    loop.set_debug(False)
    assert loop.get_debug() is False


@pytest.mark.parametrize("name", ["call_soon", "call_later", "call_at"])
def test_another_thread_is_caught_while_the_loop_runs(debug_loop, name):
    caught = []

    def work():
        try:
            calls(debug_loop)[name](print)
        except RuntimeError as exc:
            caught.append(str(exc))

    debug_loop.call_soon(in_thread, work)
    turn(debug_loop)
    assert caught == ["Non-thread-safe operation invoked on an event loop other than the current one"]


def test_threadsafe_calls_are_not_caught(debug_loop):
    got = []
    debug_loop.call_soon(in_thread, debug_loop.call_soon_threadsafe, got.append, 1)
    turn(debug_loop, 2)
    assert got == [1]


def test_other_threads_may_schedule_while_the_loop_stands(debug_loop):
    got = []
    in_thread(debug_loop.call_soon, got.append, 1)
    in_thread(debug_loop.call_later, 0, got.append, 2)
    turn(debug_loop, 2)
    assert got == [1, 2]


def test_outside_debug_mode_threads_are_not_checked(loop):
    got = []
    loop.call_soon(in_thread, loop.call_soon, got.append, 1)
    turn(loop, 2)
    assert got == [1]


@pytest.mark.parametrize("name", ["call_soon", "call_soon_threadsafe", "call_later", "call_at"])
def test_what_cannot_be_called_is_a_type_error(debug_loop, name):
    said = "call_at" if name == "call_later" else name  # call_later goes through call_at in some versions
    for wrong in (42, None, "x", object()):
        with pytest.raises(TypeError, match=rf"a callable object was expected by ({said}|call_later)\(\), got"):
            calls(debug_loop)[name](wrong)


@pytest.mark.parametrize("name", ["call_soon", "call_soon_threadsafe", "call_later", "call_at"])
def test_coroutines_are_no_callbacks(debug_loop, name):
    async def coro():
        pass

    said = f"({name}|call_at)"
    with pytest.raises(TypeError, match=rf"coroutines cannot be used with {said}\(\)"):
        calls(debug_loop)[name](coro)
    made = coro()
    with pytest.raises(TypeError, match=rf"coroutines cannot be used with {said}\(\)"):
        calls(debug_loop)[name](made)
    made.close()


def test_coroutine_functions_are_refused_by_executors(debug_loop):
    async def coro():
        pass

    with pytest.raises(TypeError):
        debug_loop.run_in_executor(None, coro)
    with pytest.raises(TypeError):
        debug_loop.run_in_executor(None, 42)


# ---- slow callbacks


@pytest.mark.parametrize("source", ["soon", "timer", "threadsafe", "thread", "reader", "writer", "done callback"])
def test_a_slow_callback_of_any_source_is_logged(debug_loop, sockets, log, source):
    a, b = sockets.pair()
    loop = debug_loop

    def work(*args):
        loop.remove_reader(a)
        loop.remove_writer(a)
        slow()

    if source == "soon":
        loop.call_soon(work)
    elif source == "timer":
        loop.call_later(0, work)
    elif source == "threadsafe":
        loop.call_soon_threadsafe(work)
    elif source == "thread":
        in_thread(loop.call_soon_threadsafe, work)
    elif source == "reader":
        b.send(b"!")
        loop.add_reader(a, work)
    elif source == "writer":
        loop.add_writer(a, work)
    else:
        fut = loop.create_future()
        fut.add_done_callback(work)
        fut.set_result(None)
    turn(loop, 2)
    (line,) = executing(log)
    kind = "TimerHandle when=" if source == "timer" else "Handle "
    if source in ("threadsafe", "thread") and sys.version_info >= (3, 14):
        kind = "_ThreadSafeHandle "
    assert re.match(rf"Executing <{kind}.*work\(.*test_debug\.py:\d+.* took 0\.\d\d\d seconds$", line), line


def test_a_slow_task_is_logged_as_a_task(debug_loop, log):
    async def main():
        await asyncio.sleep(0)
        slow()

    debug_loop.run_until_complete(main())
    (line,) = executing(log)
    assert re.match(
        r"Executing <Task (pending|finished) name='Task-\d+' coro=<.*main\(\).*> took 0\.\d\d\d seconds$", line
    ), line


@pytest.mark.parametrize("behind", [False, True], ids=["in the poll", "behind a callback"])
def test_slow_protocols_are_logged_once(debug_loop, sockets, log, behind):
    """Whether it runs in the poll or, as something is scheduled before it, in a handle of its own."""
    a, b = sockets.pair()

    class Slow(asyncio.Protocol):
        def connection_made(self, transport):
            slow()

        def data_received(self, data):
            slow()
            got.set_result(data)

    async def main():
        transport, _ = await debug_loop.create_connection(Slow, sock=a)
        await asyncio.sleep(0)
        assert len(executing(log)) == 1
        b.send(b"!")
        if behind:
            debug_loop.call_soon(debug_loop.call_soon, int)
        assert await got == b"!"
        await asyncio.sleep(0)
        assert len(executing(log)) == 1
        transport.close()

    got = debug_loop.create_future()
    debug_loop.run_until_complete(main())


def test_the_limit_of_slowness_can_be_set(debug_loop, log):
    assert debug_loop.slow_callback_duration == 0.1
    debug_loop.slow_callback_duration = 0.3
    debug_loop.call_soon(slow)
    turn(debug_loop)
    assert executing(log) == []
    debug_loop.slow_callback_duration = 0.01
    debug_loop.call_soon(slow, 0.015)
    turn(debug_loop)
    assert len(executing(log)) == 1


def test_a_slow_callback_that_fails_is_logged_and_reported(debug_loop, log, errors):
    def bad():
        slow()
        raise KeyError

    debug_loop.call_soon(bad)
    turn(debug_loop)
    assert len(executing(log)) == 1
    assert len(errors.take()) == 1


def test_fast_callbacks_are_not_logged(debug_loop, log):
    for _ in range(50):
        debug_loop.call_soon(time.sleep, 0.0001)
    turn(debug_loop)
    assert log.take() == []


def test_outside_debug_mode_slowness_is_not_logged(loop, log):
    loop.call_soon(slow)
    turn(loop)
    assert log.take() == []


# ---- switching while the loop runs


def test_switching_on_in_a_run_takes_effect_in_it(loop, log):
    loop.call_soon(loop.set_debug, True)
    loop.call_soon(lambda: loop.call_soon(slow))
    turn(loop, 3)
    assert len(executing(log)) == 1
    loop.call_soon(loop.set_debug, False)
    turn(loop, 2)
    loop.call_soon(slow)
    turn(loop)
    assert log.take() == []


def test_origins_of_coroutines_are_tracked_while_a_debug_loop_runs(debug_loop):
    got = []
    before = sys.get_coroutine_origin_tracking_depth()
    debug_loop.call_soon(lambda: got.append(sys.get_coroutine_origin_tracking_depth()))
    turn(debug_loop)
    assert got[0] > 0
    assert sys.get_coroutine_origin_tracking_depth() == before
    sys.set_coroutine_origin_tracking_depth(3)
    try:
        turn(debug_loop)
        assert sys.get_coroutine_origin_tracking_depth() == 3
    finally:
        sys.set_coroutine_origin_tracking_depth(before)


def test_origins_follow_the_switch_in_a_run(loop):
    got = []

    async def main():
        for on in (True, False):
            loop.set_debug(on)
            await asyncio.sleep(0)
            got.append(sys.get_coroutine_origin_tracking_depth() > 0)

    loop.run_until_complete(main())
    assert got == [True, False]
    assert sys.get_coroutine_origin_tracking_depth() == 0


def test_origins_are_put_back_after_an_interrupt(debug_loop):
    def bad():
        raise KeyboardInterrupt

    debug_loop.call_soon(bad)
    with pytest.raises(KeyboardInterrupt):
        debug_loop.run_forever()
    assert sys.get_coroutine_origin_tracking_depth() == 0


def test_source_tracebacks(debug_loop):
    """Handles and futures made in debug mode know where they were made; others do not."""

    def made_here(loop):
        return [
            loop.call_soon(bool),
            loop.call_later(1, bool),
            loop.call_at(1, bool),
            loop.call_soon_threadsafe(bool),
            loop.create_future(),
        ]

    for thing in made_here(debug_loop):
        last = -2 if isinstance(thing, asyncio.Future) else -1  # behind it is create_future() itself, in Python or not
        assert "made_here" in [frame.name for frame in thing._source_traceback][last:], thing
        thing.cancel()
        assert "created at" in repr(thing)
    debug_loop.set_debug(False)
    for thing in made_here(debug_loop):
        assert not getattr(thing, "_source_traceback", None)
        assert "created at" not in repr(thing)
        thing.cancel()


def test_tasks_know_where_they_were_made(debug_loop):
    async def work():
        pass

    def made_here():
        return debug_loop.create_task(work())

    task = made_here()
    assert task._source_traceback[-1].name == "made_here"
    debug_loop.run_until_complete(task)


def test_a_debug_run_is_otherwise_the_same(new_loop, sockets):
    def trace(debug):
        loop, got = new_loop(), []
        loop.set_debug(debug)
        a, b = sockets.pair()
        b.send(b"!")

        async def task():
            for i in range(3):
                got.append(i)
                await asyncio.sleep(0)

        loop.add_reader(a, lambda: (got.append("r"), loop.remove_reader(a)))
        loop.call_later(0, got.append, "t")
        loop.call_soon(lambda: (got.append("s"), loop.call_soon(got.append, "s2")))
        loop.call_soon_threadsafe(got.append, "ts")
        waiting = loop.create_task(task())
        turn(loop, 5)
        assert waiting.done()
        return got

    assert trace(True) == trace(False)
