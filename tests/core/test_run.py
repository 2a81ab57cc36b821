"""Running: run_forever, run_until_complete, stop, nesting, tasks and their factories, asynchronous generators,
Runner.
"""

import asyncio
import gc
import time

import pytest

from support.drive import in_thread, run, run_until_stopped, turn


async def give(value):
    await asyncio.sleep(0)
    return value


# ---- run_until_complete


def test_results_of_all_awaitables(loop):
    fut = loop.create_future()
    loop.call_soon(fut.set_result, "future")
    assert loop.run_until_complete(fut) == "future"
    assert loop.run_until_complete(fut) == "future"
    assert loop.run_until_complete(give("coroutine")) == "coroutine"
    assert loop.run_until_complete(loop.create_task(give("task"))) == "task"

    class Awaitable:
        def __await__(self):
            return give("awaitable").__await__()

    assert loop.run_until_complete(Awaitable()) == "awaitable"


@pytest.mark.parametrize("wrong", [None, 42, print, (), "x"], ids=repr)
def test_what_cannot_be_awaited(loop, wrong):
    with pytest.raises(TypeError):
        loop.run_until_complete(wrong)
    assert loop.run_until_complete(give(1)) == 1


def test_a_future_of_another_loop_is_refused(new_loop):
    one, two = new_loop(), new_loop()
    with pytest.raises(ValueError):
        one.run_until_complete(two.create_future())


def test_exceptions_come_out_and_are_not_reported_twice(loop):
    async def bad():
        await asyncio.sleep(0)
        raise KeyError("x")

    for _ in range(2):
        with pytest.raises(KeyError):
            loop.run_until_complete(bad())
    fut = loop.create_future()
    fut.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        loop.run_until_complete(fut)
    del fut
    gc.collect()


def test_cancellation_comes_out(loop):
    async def main():
        asyncio.current_task().cancel("why")
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError) as caught:
        loop.run_until_complete(main())
    assert caught.value.args == ("why",)


def test_a_loop_stopped_too_early(loop):
    fut = loop.create_future()
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match=r"^Event loop stopped before Future completed\.$"):
        loop.run_until_complete(fut)
    loop.call_soon(fut.set_result, 5)
    assert loop.run_until_complete(fut) == 5


def test_pending_things_of_a_failed_run_go_on_in_the_next(loop):
    got = []

    async def bad():
        loop.call_soon(got.append, "soon")
        loop.call_later(0.001, got.append, "timer")
        loop.create_task(later())
        raise ValueError

    async def later():
        await asyncio.sleep(0.002)
        got.append("task")

    with pytest.raises(ValueError):
        loop.run_until_complete(bad())
    run(loop, asyncio.sleep(0.01))
    assert got == ["soon", "timer", "task"]


def test_an_interrupted_main_task_can_be_finished(loop):
    async def main():
        await asyncio.sleep(0.005)
        return "done"

    def interrupt():
        raise KeyboardInterrupt

    task = loop.create_task(main())
    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    assert not task.done()
    turn(loop)
    assert loop.run_until_complete(task) == "done"


def test_run_until_complete_leaves_no_callback_behind(loop):
    """After an interrupt the future no longer stops the loop when it is done."""
    got, fut = [], loop.create_future()

    def interrupt():
        raise KeyboardInterrupt

    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(fut)
    fut.set_result(None)
    loop.call_later(0.005, lambda: (got.append(1), loop.stop()))
    run_until_stopped(loop)
    assert got == [1]


# ---- run_forever and stop


def test_run_forever_returns_none_and_can_be_repeated(loop):
    for _ in range(5):
        loop.call_soon(loop.stop)
        assert loop.run_forever() is None


def test_stop_before_run_gives_exactly_one_turn(loop):
    got = []

    def first():
        got.append(1)
        loop.call_soon(got.append, 2)

    loop.call_soon(first)
    loop.stop()
    loop.stop()
    loop.run_forever()
    assert got == [1]
    loop.stop()
    loop.run_forever()
    assert got == [1, 2]


def test_a_stopped_turn_polls_without_waiting(loop, sockets):
    """The one turn of a stopped loop sees ready descriptors and due timers, and does not wait for others."""
    got = []
    a, b = sockets.pair()
    b.send(b"!")
    loop.add_reader(a, got.append, "reader")
    loop.call_later(0, got.append, "timer")
    loop.call_later(3600, got.append, "far")
    start = time.monotonic()
    loop.stop()
    loop.run_forever()
    assert time.monotonic() - start < 5
    assert got == ["reader", "timer"]
    loop.remove_reader(a)


@pytest.mark.parametrize("source", ["soon", "timer", "reader", "task", "threadsafe", "done callback"])
def test_stop_from_anywhere(loop, sockets, source):
    a, b = sockets.pair()

    async def task():
        await asyncio.sleep(0)
        loop.stop()

    if source == "soon":
        loop.call_soon(loop.stop)
    elif source == "timer":
        loop.call_later(0.001, loop.stop)
    elif source == "reader":
        loop.add_reader(a, loop.stop)
        b.send(b"!")
    elif source == "task":
        keep = loop.create_task(task())
        keep.add_done_callback(bool)
    elif source == "threadsafe":
        loop.call_soon_threadsafe(loop.stop)
    else:
        fut = loop.create_future()
        fut.add_done_callback(lambda f: loop.stop())
        fut.set_result(None)
    run_until_stopped(loop)
    loop.remove_reader(a)
    turn(loop)


def test_is_running_and_the_running_loop(loop):
    got = []
    assert not loop.is_running()
    loop.call_soon(lambda: got.extend((loop.is_running(), asyncio.get_running_loop())))
    loop.call_later(0, lambda: got.append(asyncio.get_running_loop()))
    turn(loop, 2)
    assert got == [True, loop, loop]
    assert not loop.is_running()
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


# gh-130145: in 3.13.0 to 3.13.2 a refused run harms the one in progress.
harms_outer_run = pytest.mark.asyncio_gap("gh-130145", since=(3, 13), until=(3, 13, 3))


@harms_outer_run
def test_a_run_in_another_thread_at_the_same_time_is_refused(loop):
    def other():
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_until_complete(loop.create_future())
        assert loop.is_running()

    loop.call_soon(in_thread, other)
    turn(loop)


@harms_outer_run
def test_a_nested_run_is_refused_and_harms_nothing(loop):
    async def main():
        for call in (loop.run_forever, lambda: loop.run_until_complete(loop.create_future())):
            with pytest.raises(RuntimeError, match="already running"):
                call()
        assert asyncio.get_running_loop() is loop
        assert loop.is_running()
        await asyncio.sleep(0.002)
        return asyncio.get_running_loop() is loop

    assert run(loop, main()) is True


@harms_outer_run
def test_another_loop_inside_a_running_one_is_refused(new_loop):
    outer, inner = new_loop(), new_loop()

    async def main():
        with pytest.raises(RuntimeError, match="Cannot run the event loop while another loop is running"):
            inner.run_forever()
        coro = give(1)
        with pytest.raises(RuntimeError):
            inner.run_until_complete(coro)
        coro.close()
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is outer
        assert not inner.is_running()

    run(outer, main())
    assert run(inner, give(2)) == 2


@harms_outer_run
def test_the_coroutine_of_a_refused_run_is_never_started(loop):
    async def inner():
        pytest.fail("was run")

    async def main():
        coro = inner()
        with pytest.raises(RuntimeError):
            loop.run_until_complete(coro)
        with pytest.warns(RuntimeWarning, match="never awaited"):
            del coro
            gc.collect()

    run(loop, main())
