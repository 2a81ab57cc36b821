"""Tasks and futures of the loop, asynchronous generators, Runner and run."""

import asyncio
import contextlib
import contextvars
import gc
import sys
import time
import warnings
import weakref

import pytest

from support.drive import in_thread, run, start_thread, turn


async def give(value):
    return value


# ---- tasks and futures


def test_tasks_and_futures_are_asyncios(loop):
    fut, task = loop.create_future(), loop.create_task(give(1))
    assert type(fut) is asyncio.Future
    assert type(task) is asyncio.Task
    assert fut.get_loop() is loop
    assert task.get_loop() is loop
    assert loop.run_until_complete(task) == 1


def test_task_names_and_contexts(loop):
    var = contextvars.ContextVar("var", default="none")
    context = contextvars.copy_context()
    context.run(var.set, "given")

    async def ask():
        return var.get(), asyncio.current_task().get_name()

    assert loop.run_until_complete(loop.create_task(ask(), name="own", context=context)) == ("given", "own")
    value, name = loop.run_until_complete(loop.create_task(ask()))
    assert value == "none"
    assert name.startswith("Task-")
    assert loop.run_until_complete(loop.create_task(ask(), name=None))[1].startswith("Task-")
    with pytest.raises(TypeError):
        loop.create_task(42)
    with pytest.raises(TypeError):
        loop.create_task()


async def test_every_task_has_a_context_of_its_own(loop):
    var = contextvars.ContextVar("var", default="none")
    var.set("main")

    async def child(name):
        assert var.get() == "main"
        var.set(name)
        await asyncio.sleep(0)
        return var.get()

    assert await asyncio.gather(*map(child, "abc")) == ["a", "b", "c"]
    assert var.get() == "main"


def test_a_task_factory_of_two_arguments_is_enough(loop):
    made = []

    def factory(loop, coro):
        made.append(asyncio.Task(coro, loop=loop))
        return made[-1]

    loop.set_task_factory(factory)

    async def main():
        return await asyncio.gather(give(1), give(2))

    assert loop.run_until_complete(main()) == [1, 2]
    assert len(made) == 3


def test_a_task_factory_gets_what_create_task_was_given(loop):
    got, context = [], contextvars.copy_context()

    def factory(loop, coro, **kwargs):
        got.append(kwargs)
        kwargs.pop("name", None)
        return asyncio.Task(coro, loop=loop, **kwargs)

    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    tasks = [loop.create_task(give(1)), loop.create_task(give(2), context=context)]
    loop.run_until_complete(asyncio.wait(tasks))
    assert got[1]["context"] is context
    assert "context" not in got[0] or got[0]["context"] is None


def test_the_task_factory_is_callable_or_none(loop):
    assert loop.get_task_factory() is None
    for wrong in (42, "x", object()):
        with pytest.raises(TypeError):
            loop.set_task_factory(wrong)

    class Mine(asyncio.Task):
        pass

    loop.set_task_factory(lambda loop, coro, **kw: Mine(coro, loop=loop, **kw))
    task = loop.create_task(give(3))
    assert type(task) is Mine
    assert loop.run_until_complete(task) == 3
    loop.set_task_factory(None)
    assert loop.get_task_factory() is None


def test_a_failing_task_factory(loop):
    def factory(loop, coro, **kwargs):
        coro.close()
        raise KeyError("no task")

    loop.set_task_factory(factory)
    with pytest.raises(KeyError):
        loop.create_task(give(1))
    loop.set_task_factory(None)
    assert loop.run_until_complete(give(2)) == 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
def test_eager_tasks(loop):
    order = []

    async def quick():
        return 5

    async def slow():
        order.append("first")
        await asyncio.sleep(0)
        order.append("second")

    async def main():
        task = asyncio.create_task(quick())
        assert task.done()
        assert await task == 5
        task = asyncio.create_task(slow())
        order.append("made")
        await task
        async with asyncio.TaskGroup() as group:
            group.create_task(quick())
            group.create_task(slow())

    loop.set_task_factory(asyncio.eager_task_factory)
    loop.run_until_complete(main())
    assert order == ["first", "made", "second"] + ["first", "second"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="eager_start is new in 3.14")
async def test_eager_start(loop):
    async def quick():
        return 5

    assert asyncio.create_task(quick(), eager_start=True).done()
    task = loop.create_task(quick(), eager_start=False)
    assert not task.done()
    await task


async def test_a_task_cancelled_before_its_start_never_runs(loop):
    async def work():
        pytest.fail("was run")

    task = asyncio.create_task(work())
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.args == ("why",)


async def test_a_task_that_yields_nonsense_fails(loop):
    class Odd:
        def __await__(self):
            yield 42

    async def await_odd():
        await Odd()

    with pytest.raises(RuntimeError, match="bad yield"):
        await asyncio.create_task(await_odd())


async def test_waiting_for_a_future_of_another_loop_fails(loop, kind, new_loop):
    other = new_loop()

    async def wait():
        await other.create_future()

    with pytest.raises(RuntimeError, match="attached to a different loop"):
        await asyncio.create_task(wait())


async def test_groups_gather_and_wait(loop):
    ended = []

    async def sleeper():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cleaned")

    async def bad():
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper())
            group.create_task(bad())
    assert [type(e) for e in caught.value.exceptions] == [KeyError]
    assert ended == ["cleaned"]
    done, pending = await asyncio.wait([asyncio.ensure_future(give(i)) for i in range(5)])
    assert (len(done), len(pending)) == (5, 0)
    assert sorted([await f for f in asyncio.as_completed([give(2), give(1)])]) == [1, 2]
    assert isinstance((await asyncio.gather(bad(), return_exceptions=True))[0], KeyError)


async def test_queues_locks_and_conditions_are_fair(loop):
    got, items, lock = [], asyncio.Queue(2), asyncio.Lock()

    async def getter(n):
        got.append((n, await items.get()))

    async def locker(n):
        async with lock:
            got.append(n)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(getter(n)) for n in range(4)]
    await asyncio.sleep(0)
    for item in "abcd":
        await items.put(item)
    await asyncio.gather(*tasks)
    assert got == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    del got[:]
    await asyncio.gather(*map(locker, range(5)))
    assert got == list(range(5))


# ---- asynchronous generators


async def ticker(log):
    try:
        for i in range(10):
            yield i
    finally:
        await asyncio.sleep(0)
        log.append("closed")


def test_generator_hooks_are_the_loops_while_it_runs(loop):
    def first(gen):
        pass

    def final(gen):
        pass

    got = []

    def interrupt():
        raise KeyboardInterrupt

    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(first, final)
    try:
        loop.call_soon(lambda: got.append(tuple(sys.get_asyncgen_hooks())))
        turn(loop)
        assert got[0][0] not in (None, first)
        assert got[0][1] not in (None, final)
        assert tuple(sys.get_asyncgen_hooks()) == (first, final)
        loop.call_soon(interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert tuple(sys.get_asyncgen_hooks()) == (first, final)
    finally:
        sys.set_asyncgen_hooks(*before)


async def test_a_dropped_generator_is_closed_by_the_loop(loop):
    log = []
    gen = ticker(log)
    await anext(gen)
    del gen
    gc.collect()
    for _ in range(4):
        await asyncio.sleep(0)
    assert log == ["closed"]


async def test_a_generator_dropped_in_another_thread_is_closed_by_the_loop(loop):
    log = []
    box = [ticker(log)]
    await anext(box[0])
    await loop.run_in_executor(None, box.clear)
    gc.collect()
    for _ in range(6):
        await asyncio.sleep(0.001)
    assert log == ["closed"]


def test_shutdown_asyncgens(loop, errors):
    log = []

    async def bad():
        try:
            yield 1
        finally:
            raise KeyError("in close")

    gens = [ticker(log), ticker(log), bad()]

    async def main():
        for gen in gens:
            await anext(gen)

    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert log == ["closed", "closed"]
    (context,) = errors.take()
    assert isinstance(context["exception"], KeyError)
    assert context["asyncgen"] is gens[2]

    async def late():
        gen = ticker(log)
        with pytest.warns(ResourceWarning, match="after loop.shutdown_asyncgens"):
            await anext(gen)
        await gen.aclose()

    loop.run_until_complete(late())


# ---- Runner and run


def test_runner_with_this_loop(new_loop):
    async def who():
        return asyncio.get_running_loop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        first = runner.run(who())
        assert runner.run(who()) is first
        assert runner.get_loop() is first
    assert first.is_closed()
    with asyncio.Runner(loop_factory=new_loop, debug=True) as runner:
        assert runner.run(who()).get_debug()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.run takes a loop_factory from 3.12 on")
def test_asyncio_run_with_this_loop(new_loop):
    left = []

    async def stays():
        try:
            await asyncio.sleep(3600)
        finally:
            left.append("cancelled")

    async def main():
        task = asyncio.create_task(stays())
        await asyncio.sleep(0)
        gen = ticker(left)
        await anext(gen)
        await asyncio.to_thread(time.sleep, 0)
        return task, gen

    task, gen = asyncio.run(main(), loop_factory=new_loop)
    assert left == ["cancelled", "closed"]
    assert task.cancelled()


def test_exceptions_leave_a_runner(new_loop):
    async def bad(kind):
        raise kind("x")

    for kind_of_error in (KeyError, SystemExit, KeyboardInterrupt):
        with pytest.raises(kind_of_error), asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(bad(kind_of_error))


def test_many_loops_one_after_the_other(new_loop):
    for n in range(30):
        loop = new_loop()
        assert run(loop, give(n)) == n
        loop.close()


def test_the_loop_as_current_loop(new_loop):
    """set_event_loop() takes the loop, and get_event_loop() gives it back."""
    loop = new_loop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop(loop)
        try:
            assert asyncio.get_event_loop() is loop
            assert in_thread(asyncio._get_running_loop) is None
        finally:
            asyncio.set_event_loop(None)


def test_locals_of_finished_callbacks_are_gone(loop):
    """Nothing of a callback's frame outlives its turn, also after an interrupt."""

    class Thing:
        pass

    refs = []

    def work(kind_of_error=None):
        thing = Thing()
        refs.append(weakref.ref(thing))
        if kind_of_error:
            raise kind_of_error

    loop.call_soon(work)
    turn(loop)
    loop.call_soon(work, KeyboardInterrupt)
    with contextlib.suppress(KeyboardInterrupt):
        loop.run_forever()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_run_of_every_thing_at_once(loop, sockets):
    """Tasks, timers, readers, futures, threads and generators together give what each gives alone."""
    got = []
    a, b = sockets.pair()

    async def worker(i):
        gen = ticker([])
        async for x in gen:
            got.append(x)
            if x == 2:
                break
        await gen.aclose()
        await asyncio.sleep(0.0005 * (i % 3))

    async def main():
        loop.add_reader(a, lambda: got.append(a.recv(1)))
        tasks = [asyncio.create_task(worker(i)) for i in range(15)]
        for _ in range(15):
            b.send(b"!")
            loop.call_later(0.0005, bool).cancel()
        join = start_thread(lambda: [loop.call_soon_threadsafe(got.append, "safe") for _ in range(15)])
        got.append(await loop.run_in_executor(None, str, "thread"))
        await asyncio.gather(*tasks)
        join()
        while got.count(b"!") + got.count("safe") < 30:
            await asyncio.sleep(0)
        loop.remove_reader(a)

    run(loop, main())
    assert sorted(map(str, got)) == sorted(map(str, [0, 1, 2] * 15 + [b"!"] * 15 + ["safe"] * 15 + ["thread"]))
