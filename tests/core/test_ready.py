"""The queue of callbacks: order, arguments, the borders of a turn, cancelling, exceptions in the middle of it."""

import asyncio
import functools
import itertools

import pytest

from support.drive import run_until_stopped, turn, turns


def fail(kind=ZeroDivisionError):
    raise kind("on purpose")


def test_callbacks_run_in_the_order_given(loop):
    got = []
    for i in range(3000):
        loop.call_soon(got.append, i)
    turn(loop)
    assert got == list(range(3000))


def test_a_growing_queue_keeps_its_order(loop):
    """Each callback schedules two more while the queue is drained, so it grows while its front moves: breadth
    first, nothing lost.
    """
    got = []

    def grow(n):
        got.append(n)
        if 2 * n + 2 < 4000:
            loop.call_soon(grow, 2 * n + 1)
            loop.call_soon(grow, 2 * n + 2)

    loop.call_soon(grow, 0)
    turn(loop, 14)
    assert got == list(range(3999))


@pytest.mark.parametrize("sizes", [(1, 3, 7, 5), (16, 1, 16, 1), (63, 64, 65, 2), (500, 3, 1000, 1)])
def test_a_shrinking_and_growing_queue_keeps_its_order(loop, sizes):
    """Turns of many sizes one after the other, so that the ring's seam is passed at every fill."""
    got, count = [], itertools.count()
    for size in sizes * 40:
        for _ in range(size):
            loop.call_soon(got.append, next(count))
        turn(loop)
    assert got == list(range(next(count)))


def test_a_turn_runs_what_was_there_at_its_start(loop):
    got = []

    def level(n):
        got.append(n)
        if n < 5:
            loop.call_soon(level, n + 1)
            loop.call_soon(level, n + 1)

    loop.call_soon(level, 0)
    for n in range(6):
        turn(loop)
        assert got == [i for i in range(n + 1) for _ in range(2**i)]


@pytest.mark.parametrize("count", [*range(7), 30, 255, 256, 1000])
def test_any_number_of_arguments(loop, count):
    got, args = [], tuple(object() for _ in range(count))
    loop.call_soon(lambda *a: got.append(a), *args)
    turn(loop)
    assert got == [args]
    assert all(a is b for a, b in zip(got[0], args, strict=True))


@pytest.mark.parametrize(
    "callback",
    [
        pytest.param(lambda got: got.append, id="method of a builtin"),
        pytest.param(lambda got: lambda x: got.append(x), id="function"),
        pytest.param(lambda got: functools.partial(got.append), id="partial"),
        pytest.param(lambda got: functools.partial(list.append, got), id="method descriptor"),
        pytest.param(
            lambda got: type("C", (), {"__call__": lambda self, x: got.append(x)})(), id="instance with __call__"
        ),
        pytest.param(lambda got: type("C", (), {"__init__": lambda self, x: got.append(x)}), id="class"),
        pytest.param(lambda got: type("C", (), {"m": lambda self, x: got.append(x)})().m, id="method"),
        pytest.param(lambda got: type("C", (), {"m": staticmethod(got.append)}).m, id="staticmethod"),
        pytest.param(lambda got: type("C", (), {"m": classmethod(lambda cls, x: got.append(x))}).m, id="classmethod"),
        pytest.param(lambda got: functools.singledispatch(lambda x: got.append(x)), id="function with attributes"),
    ],
)
def test_every_kind_of_callable(loop, callback):
    got = []
    loop.call_soon(callback(got), 7)
    loop.call_later(0, callback(got), 8)
    loop.call_soon_threadsafe(callback(got), 9)
    turn(loop, 2)
    assert got == [7, 9, 8]


def test_callables_without_arguments(loop):
    got = []
    loop.call_soon([1].clear)
    loop.call_soon(dict)
    loop.call_soon(functools.partial(got.append, 1))
    turn(loop)
    assert got == [1]


def test_keywords_are_refused(loop):
    for call in (
        loop.call_soon,
        loop.call_soon_threadsafe,
        functools.partial(loop.call_later, 1),
        functools.partial(loop.call_at, 1),
    ):
        with pytest.raises(TypeError):
            call(print, end="")
        with pytest.raises(TypeError):
            call(print, 1, contexts=None)
        with pytest.raises(TypeError):
            call()
    loop.call_soon(bool, context=None)
    loop.call_soon(callback=bool)
    turn(loop)


def test_return_values_are_let_go(loop):
    """Nothing keeps what a callback returned."""
    dead = []

    class Result:
        def __del__(self):
            dead.append(1)

    loop.call_soon(Result)
    loop.call_later(0, Result)
    loop.call_soon_threadsafe(Result)
    turn(loop, 3)
    assert len(dead) == 3


# ---- cancelling


def test_every_second_handle_cancelled(loop):
    got = []
    handles = [loop.call_soon(got.append, i) for i in range(100)]
    for handle in handles[::2]:
        handle.cancel()
    turn(loop)
    assert got == list(range(1, 100, 2))


def test_a_callback_may_cancel_the_rest_of_its_turn(loop):
    got = []

    def first():
        got.append("first")
        for handle in handles:
            handle.cancel()
        loop.call_soon(got.append, "after")

    handles = [loop.call_soon(first), *(loop.call_soon(got.append, i) for i in range(20))]
    turn(loop, 3)
    assert got == ["first", "after"]


def test_a_callback_may_cancel_itself(loop):
    got = []

    def work(arg):
        handle.cancel()
        got.append((arg, handle.cancelled()))

    handle = loop.call_soon(work, "argument")
    turn(loop, 2)
    assert got == [("argument", True)]


def test_a_cancelled_handle_does_not_hold_up_the_turn(loop):
    """A turn of nothing but cancelled handles ends, and the next one comes."""
    got = []
    for _ in range(10):
        loop.call_soon(got.append, "never").cancel()
    loop.call_later(0.001, lambda: (got.append("timer"), loop.stop()))
    run_until_stopped(loop)
    assert got == ["timer"]


def test_cancelled_in_the_turn_before(loop):
    got, handles = [], []

    def first():
        handles.append(loop.call_soon(got.append, "cancelled"))
        loop.call_soon(got.append, "kept")
        handles[0].cancel()

    loop.call_soon(first)
    turn(loop, 2)
    assert got == ["kept"]


# ---- order between the sources of callbacks


def test_soon_reader_timer_in_one_turn(loop, sockets):
    """What is queued runs first, then what the poll finds, then the timers due; what those schedule runs a turn
    later.
    """
    got = []
    a, b = sockets.pair()
    b.send(b"!")

    def note(name):
        got.append(name)
        loop.call_soon(got.append, f"{name}2")

    loop.call_later(0, note, "timer")
    loop.add_reader(a, lambda: (loop.remove_reader(a), note("reader")))
    loop.call_soon(note, "soon")
    loop.call_soon_threadsafe(note, "safe")
    turn(loop)
    assert got == ["soon", "safe", "reader", "timer"]
    turn(loop)
    assert got == ["soon", "safe", "reader", "timer", "soon2", "safe2", "reader2", "timer2"]


def test_a_reader_made_in_a_callback_runs_in_the_next_turn(loop, sockets):
    got = []
    a, b = sockets.pair()
    b.send(b"!")

    def first():
        loop.add_reader(a, lambda: (got.append("reader"), loop.remove_reader(a)))
        loop.call_soon(got.append, "soon")

    loop.call_soon(first)
    turn(loop)
    assert got == []
    turn(loop)
    assert got == ["soon", "reader"]


@pytest.mark.parametrize("source", ["reader", "writer", "timer", "threadsafe"])
def test_an_endless_chain_starves_nobody(loop, sockets, source):
    """A callback that schedules itself for ever leaves every other source its turn."""
    spins = []
    a, b = sockets.pair()

    def spin():
        spins.append(1)
        assert len(spins) < 1000, f"the {source} was starved"
        loop.call_soon(spin)

    def done():
        loop.remove_reader(a)
        loop.remove_writer(a)
        loop.stop()

    if source == "reader":
        b.send(b"!")
        loop.add_reader(a, done)
    elif source == "writer":
        loop.add_writer(a, done)
    elif source == "timer":
        loop.call_later(0, done)
    else:
        loop.call_soon(lambda: loop.call_soon_threadsafe(done))
    loop.call_soon(spin)
    loop.run_forever()
    assert len(spins) <= 3


def test_an_endless_chain_of_timers_starves_no_reader(loop, sockets):
    got = []
    a, b = sockets.pair()
    b.send(b"!")

    def again():
        got.append(1)
        assert len(got) < 1000
        loop.call_later(0, again)

    again()
    loop.add_reader(a, lambda: (loop.remove_reader(a), loop.stop()))
    loop.run_forever()
    assert len(got) <= 3


async def test_tasks_step_in_turn(loop):
    """Tasks that yield run one step a turn each, in the order in which they were made, whatever they await in
    between.
    """
    got = []

    async def inner():
        await asyncio.sleep(0)

    async def worker(name):
        for i in range(4):
            got.append((i, name))
            await inner()

    await asyncio.gather(*map(worker, "abcd"))
    assert got == [(i, n) for i in range(4) for n in "abcd"]


async def test_done_callbacks_run_in_order_and_later(loop):
    fut, got = loop.create_future(), []
    for i in range(5):
        fut.add_done_callback(lambda f, i=i: got.append((i, f.result())))
    removed = got.append
    fut.add_done_callback(removed)
    fut.remove_done_callback(removed)
    loop.call_soon(got.append, "before")
    fut.set_result("r")
    loop.call_soon(got.append, "behind")
    assert got == []
    await turns(1)
    assert got == ["before", *((i, "r") for i in range(5)), "behind"]


async def test_a_future_wakes_its_waiters_one_turn_later(loop):
    """The number of turns between set_result() and the waiter's step is asyncio's."""
    fut, ticks, woken = loop.create_future(), [], []

    def tick():
        ticks.append(1)
        if not woken:
            loop.call_soon(tick)

    async def waiter():
        await fut
        woken.append(len(ticks))

    task = loop.create_task(waiter())
    await turns(2)
    loop.call_soon(tick)
    fut.set_result(None)
    await task
    assert woken == [1]


# ---- exceptions in the middle of a turn


@pytest.mark.parametrize("via", ["soon", "threadsafe", "timer", "done callback"])
def test_an_exception_costs_the_turn_nothing(loop, errors, via):
    """The handles behind one that fails run in the same turn."""
    got = []
    if via == "soon":
        loop.call_soon(fail)
    elif via == "threadsafe":
        loop.call_soon_threadsafe(fail)
    elif via == "timer":
        loop.call_later(0, fail)
        loop.call_later(0, got.append, 1)
    else:
        fut = loop.create_future()
        fut.add_done_callback(lambda f: fail())
        fut.set_result(None)
    if via != "timer":
        loop.call_soon(got.append, 1)
    turn(loop)
    assert got == [1]
    assert [type(c["exception"]) for c in errors.take()] == [ZeroDivisionError]


def test_every_callback_of_a_turn_may_fail(loop, errors):
    for _ in range(50):
        loop.call_soon(fail)
    turn(loop)
    assert len(errors.take()) == 50


@pytest.mark.parametrize("kind_of_exit", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", [0, 1, 25, 49])
def test_an_interrupt_leaves_the_rest_for_the_next_run(loop, kind_of_exit, place):
    """The handles behind the one that raised run once, in order, before what is scheduled afterwards."""
    got = []
    for i in range(50):
        if i == place:
            loop.call_soon(fail, kind_of_exit)
        loop.call_soon(got.append, i)
    with pytest.raises(kind_of_exit, match="on purpose"):
        loop.run_forever()
    assert got == list(range(place))
    loop.call_soon(got.append, 50)
    turn(loop)
    assert got == list(range(51))


def test_interrupts_one_after_the_other(loop):
    """Several interrupts in one queue end a run each; nothing between them is lost, doubled or out of order."""
    got = []
    for i in range(5):
        loop.call_soon(got.append, i)
        loop.call_soon(fail, KeyboardInterrupt)
    for i in range(5):
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert got == list(range(i + 1))
    turn(loop)
    assert got == list(range(5))


def test_what_a_turn_scheduled_before_an_interrupt_comes_behind_its_rest(loop):
    got = []
    loop.call_soon(lambda: loop.call_soon(got.append, "child"))
    loop.call_soon(fail, KeyboardInterrupt)
    loop.call_soon(got.append, "rest")
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    turn(loop)
    assert got == ["rest", "child"]


def test_the_rest_of_an_interrupted_turn_can_be_cancelled(loop):
    got = []
    loop.call_soon(fail, SystemExit)
    handles = [loop.call_soon(got.append, i) for i in range(4)]
    with pytest.raises(SystemExit):
        loop.run_forever()
    handles[1].cancel()
    handles[3].cancel()
    turn(loop)
    assert got == [0, 2]


@pytest.mark.parametrize("source", ["reader", "timer", "threadsafe", "task"])
def test_an_interrupt_from_elsewhere_keeps_the_rest(loop, sockets, source):
    got = []
    a, b = sockets.pair()
    b.send(b"!")

    def bad():
        loop.remove_reader(a)
        fail(KeyboardInterrupt)

    async def bad_task():
        bad()

    if source == "reader":
        loop.add_reader(a, bad)
        loop.call_later(0, got.append, 1)
    elif source == "timer":
        loop.call_later(0, bad)
        loop.call_later(0, got.append, 1)
    elif source == "threadsafe":
        loop.call_soon_threadsafe(bad)
        loop.call_soon_threadsafe(got.append, 1)
    else:
        task = loop.create_task(bad_task())
        loop.call_soon(got.append, 1)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert got == []
    turn(loop)
    assert got == [1]
    if source == "task":
        with pytest.raises(KeyboardInterrupt):
            task.result()


def test_stop_in_the_middle_lets_the_turn_end(loop):
    got = []
    loop.call_soon(got.append, 1)
    loop.call_soon(lambda: (loop.stop(), loop.call_soon(got.append, "next run")))
    loop.call_soon(got.append, 2)
    loop.run_forever()
    assert got == [1, 2]
    turn(loop)
    assert got == [1, 2, "next run"]
