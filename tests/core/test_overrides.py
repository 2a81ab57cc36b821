"""What a subclass or an instance overrides is used wherever asyncio's own code would use it."""

import asyncio
import concurrent.futures
import functools
import gc
import socket

import pytest

from support import leaks
from support.drive import in_thread, run, run_until_stopped, turn
from support.protocols import Recorder, keeping, serve


@pytest.fixture(params=["subclass", "instance"])
def make(request, loop_class, errors):
    """make(name=function, ...): a loop whose methods of these names are overridden, in a subclass or on the instance.

    Each function gets the original, bound, as its first argument.
    """
    made = []

    def in_class(name, function):
        return lambda self, *a, **k: function(functools.partial(getattr(loop_class, name), self), *a, **k)

    def build(**functions):
        if request.param == "subclass":
            methods = {name: in_class(name, function) for name, function in functions.items()}
            loop = type("Mine", (loop_class,), methods)()
        else:
            loop = loop_class()
            for name, function in functions.items():
                setattr(loop, name, functools.partial(function, getattr(loop, name)))
        loop.set_exception_handler(lambda loop, context: errors.add(context))
        made.append(loop)
        return loop

    yield build
    for loop in made:
        for name in set(vars(loop)) & {
            "call_soon",
            "stop",
            "time",
            "call_at",
            "call_later",
            "create_task",
            "create_future",
        }:
            delattr(loop, name)
        leaks.end_loop(loop)
        # An instance attribute that refers to its own loop is a cycle; nothing to hold against the loop.
        made[made.index(loop)] = None
    gc.collect()


class Counter:
    """An override that counts and passes on."""

    def __init__(self):
        self.calls = []

    def __call__(self, original, *args, **kwargs):
        self.calls.append((args, kwargs))
        return original(*args, **kwargs)

    def names(self):
        return [getattr(args[0], "__name__", None) for args, _ in self.calls if args]


def test_call_soon_carries_the_steps_of_tasks(make):
    """Every step of a task and every done callback goes through the overridden call_soon."""
    seen = Counter()
    loop = make(call_soon=seen)

    async def main():
        for _ in range(5):
            await asyncio.sleep(0)
        fut = loop.create_future()
        loop.call_later(0, fut.set_result, 3)
        return await fut

    assert loop.run_until_complete(main()) == 3
    # 6 steps, the wake-up of the task by the future, and the done callback of run_until_complete
    assert len(seen.calls) == 8
    assert all(kwargs.get("context") is not None for _, kwargs in seen.calls)


def test_call_soon_may_wrap_what_it_schedules(make, sockets):
    """A tracing program: protocols are made and lost inside what call_soon was given."""
    inside, got = [False], []

    def trace(original, callback, *args, **kwargs):
        def wrapped():
            inside[0] = True
            try:
                callback(*args)
            finally:
                inside[0] = False

        return original(wrapped, **kwargs)

    class Asks(Recorder):
        def connection_made(self, transport):
            got.append(inside[0])
            super().connection_made(transport)

        def connection_lost(self, exc):
            got.append(inside[0])
            super().connection_lost(exc)

    async def main():
        a, b = sockets.pair(tcp=True)
        transport, protocol = await loop.create_connection(Asks, sock=a)
        b.send(b"x")
        await protocol.got(1)
        transport.close()
        await protocol.lost()

    loop = make(call_soon=trace)
    run(loop, main())
    assert got == [True, True]


def test_call_soon_may_return_a_handle_of_its_own(make):
    class Mine:
        pass

    mine = Mine()
    loop = make(call_soon=lambda original, *args, **kwargs: (original(*args, **kwargs), mine)[1])
    got = []
    assert loop.call_soon(got.append, 1) is mine
    turn(loop)
    assert loop.run_until_complete(asyncio.sleep(0, 4)) == 4
    assert got == [1]


def test_call_later_is_used_by_sleep(make):
    seen = Counter()
    loop = make(call_later=seen)
    loop.run_until_complete(asyncio.sleep(0.001))
    assert [args[0] for args, _ in seen.calls] == [0.001]


def test_call_at_is_used_by_call_later_and_timeouts(make):
    seen = Counter()
    loop = make(call_at=seen)
    before = loop.time()
    loop.call_later(5, print, 1).cancel()
    assert len(seen.calls) == 1
    assert before + 5 <= seen.calls[0][0][0] <= loop.time() + 5
    assert seen.calls[0][0][1:] == (print, 1)
    loop.run_until_complete(asyncio.sleep(0.001))
    assert len(seen.calls) == 2

    async def main():
        async with asyncio.timeout(3):
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert len(seen.calls) == 3


def test_a_clock_of_ones_own_sets_deadlines(make):
    now = [1000.0]
    loop = make(time=lambda original: now[0])
    handle = loop.call_later(2.5, print)
    assert handle.when() == 1002.5
    handle.cancel()
    assert loop.time() == 1000.0


def test_a_clock_of_ones_own_makes_timers_due(make):
    """Timers come due by the overridden clock: a test that moves its clock needs not wait."""
    now, got = [1000.0], []
    loop = make(time=lambda original: now[0])
    loop.call_later(3600, got.append, "hour")
    loop.call_later(60, got.append, "minute")
    turn(loop, 2)
    assert got == []
    now[0] += 61
    turn(loop, 2)
    assert got == ["minute"]
    now[0] += 3600
    turn(loop, 2)
    assert got == ["minute", "hour"]


def test_a_clock_that_jumps_while_the_loop_idles(make):
    """A clock moved by a callback: sleeps of hours end at once."""
    now = [0.0]
    loop = make(time=lambda original: now[0])

    async def hurry():
        while True:
            now[0] += 100
            await asyncio.sleep(0)

    async def main():
        task = asyncio.create_task(hurry())
        await asyncio.sleep(7200)
        task.cancel()

    loop.run_until_complete(main())
    assert now[0] >= 7200


def test_create_task_is_used_everywhere(make):
    seen = Counter()
    loop = make(create_task=seen)

    async def child():
        return 1

    async def main():
        await asyncio.create_task(child())
        await asyncio.gather(child(), child())
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    loop.run_until_complete(main())
    assert len(seen.calls) == 5


def test_create_future_is_used_everywhere(make, sockets):
    seen = Counter()
    loop = make(create_future=seen)
    a, b = sockets.pair()

    async def main():
        await asyncio.sleep(0.001)
        event = asyncio.Event()
        loop.call_later(0, event.set)
        await event.wait()
        loop.call_later(0.001, b.send, b"x")
        await loop.sock_recv(a, 1)
        await loop.run_in_executor(None, bool)

    loop.run_until_complete(main())
    assert len(seen.calls) == 4


def test_call_soon_threadsafe_is_used_by_executors(make):
    seen = Counter()
    loop = make(call_soon_threadsafe=seen)
    assert loop.run_until_complete(loop.run_in_executor(None, lambda: 5)) == 5
    assert len(seen.calls) >= 1
    del seen.calls[:]

    async def give():
        return 6

    def work():
        return asyncio.run_coroutine_threadsafe(give(), loop).result(10)

    async def main():
        return await loop.run_in_executor(None, work)

    assert run(loop, main()) == 6
    assert len(seen.calls) >= 2


def test_call_soon_threadsafe_is_used_for_dropped_generators(make):
    seen = Counter()
    loop = make(call_soon_threadsafe=seen)

    async def ticker():
        yield 1
        yield 2

    async def main():
        gen = ticker()
        await anext(gen)
        del gen
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert len(seen.calls) == 1


def test_run_in_executor_is_used(make):
    class Inline(concurrent.futures.Executor):
        def submit(self, fn, *args, **kwargs):
            fut = concurrent.futures.Future()
            fut.set_result(fn(*args, **kwargs))
            return fut

    seen = []

    def run_in_executor(original, executor, func, *args):
        seen.append(func)
        return original(Inline(), func, *args)

    loop = make(run_in_executor=run_in_executor)

    async def main():
        assert await asyncio.to_thread(lambda: 5) == 5
        return await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)

    assert run(loop, main())
    assert len(seen) == 2


def test_getaddrinfo_is_used_by_connections_and_servers(make):
    calls = []

    async def resolve(original, host, port, **kwargs):
        calls.append((host, port, kwargs))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    loop = make(getaddrinfo=resolve)

    async def main():
        factory, made = keeping()
        async with serve(factory, host="no.such.host") as (_, port):
            transport, protocol = await loop.create_connection(Recorder, "other.such.host", port)
            assert transport.get_extra_info("peername") == ("127.0.0.1", port)
            transport.close()
            await protocol.lost()
            reader, writer = await asyncio.open_connection("third.such.host", port)
            writer.close()
            await writer.wait_closed()
            assert await reader.read() == b""
            for p in made:
                await p.lost()

    run(loop, main())
    assert [call[0] for call in calls] == ["no.such.host", "other.such.host", "third.such.host"]
    assert all(call[2]["type"] == socket.SOCK_STREAM for call in calls)


def test_sock_connect_is_used_by_connections(make):
    seen = Counter()
    loop = make(sock_connect=seen)

    async def main():
        factory, made = keeping()
        async with serve(factory) as (_, port):
            transport, protocol = await loop.create_connection(Recorder, "127.0.0.1", port)
            transport.close()
            await protocol.lost()
            for p in made:
                await p.lost()
        return port

    port = run(loop, main())
    assert [args[1] for args, _ in seen.calls] == [("127.0.0.1", port)]


def test_sock_calls_can_be_overridden(make, sockets):
    """sock_recv and its siblings: what is overridden is what is called, and the original works below it."""
    seen = Counter()
    loop = make(sock_recv=seen, sock_sendall=seen)
    a, b = sockets.pair()

    async def main():
        await loop.sock_sendall(a, b"hello")
        return await loop.sock_recv(b, 5)

    assert run(loop, main()) == b"hello"
    assert len(seen.calls) == 2


def test_call_exception_handler_gets_every_error(make, sockets):
    """Callbacks, timers, threads, readers, tasks and protocols: all their errors pass the override."""
    contexts = []
    loop = make(call_exception_handler=lambda original, context: contexts.append(context))

    def fail(*args):
        raise ZeroDivisionError

    class Bad(Recorder):
        data_received = fail

    async def main():
        loop.call_soon(fail)
        loop.call_later(0, fail)
        in_thread(loop.call_soon_threadsafe, fail)
        a, b = sockets.pair()
        b.send(b"!")
        loop.add_reader(a, lambda: (loop.remove_reader(a), fail()))
        fut = loop.create_future()
        fut.add_done_callback(fail)
        fut.set_result(None)
        forgotten = loop.create_future()
        forgotten.set_exception(ZeroDivisionError())
        del forgotten
        gc.collect()
        c, d = sockets.pair(tcp=True)
        d.send(b"x")
        _, protocol = await loop.create_connection(Bad, sock=c)
        await protocol.lost()

    run(loop, main())
    assert len(contexts) == 7
    assert all(isinstance(context["exception"], ZeroDivisionError) for context in contexts)
    assert sum("handle" in context for context in contexts) == 5


def test_default_exception_handler_is_used(make):
    contexts = []
    loop = make(default_exception_handler=lambda original, context: contexts.append(context["message"]))
    loop.set_exception_handler(None)
    loop.call_exception_handler({"message": "one"})
    loop.call_soon(lambda: 1 / 0)
    turn(loop)
    assert len(contexts) == 2


def test_stop_and_run_forever_are_used_by_run_until_complete(make):
    stops, runs = Counter(), Counter()
    loop = make(stop=stops, run_forever=runs)
    assert loop.run_until_complete(asyncio.sleep(0, 1)) == 1
    assert len(stops.calls) == 1
    assert len(runs.calls) == 1


def test_an_override_that_raises(make):
    def bad(original, *args, **kwargs):
        if args[0] is bad:
            raise ZeroDivisionError
        return original(*args, **kwargs)

    loop = make(call_soon=bad)
    with pytest.raises(ZeroDivisionError):
        loop.call_soon(bad)
    assert loop.run_until_complete(asyncio.sleep(0, 2)) == 2


# ---- when the override comes and goes


def test_overrides_come_and_go_on_an_instance(loop):
    """An attribute assigned to a loop that already runs is used from then on, and no longer when it is deleted."""
    seen = []
    original = loop.call_soon

    def tracing(*args, **kwargs):
        seen.append(1)
        return original(*args, **kwargs)

    async def main():
        await asyncio.sleep(0)
        loop.call_soon = tracing
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del loop.call_soon
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert len(seen) == 2


def test_overrides_come_and_go_on_a_class(loop_class, errors):
    """The same on the class of a loop, also for a loop that has run before."""
    seen = []

    class Mine(loop_class):
        pass

    class More(Mine):
        pass

    def tracing(self, *args, **kwargs):
        seen.append(self)
        return loop_class.call_soon(self, *args, **kwargs)

    one, two = Mine(), More()
    for loop in (one, two):
        loop.run_until_complete(asyncio.sleep(0))
    Mine.call_soon = tracing
    for loop in (one, two):
        loop.run_until_complete(asyncio.sleep(0))
    assert {id(loop) for loop in seen} == {id(one), id(two)}
    del Mine.call_soon, seen[:]
    for loop in (one, two):
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    assert seen == []


def test_an_override_of_one_loop_is_not_anothers(new_loop):
    one, two, seen = new_loop(), new_loop(), []
    one.time = lambda: seen.append(1) or 5.0
    two.call_later(1, print).cancel()
    assert two.time() != 5.0
    assert seen == []
    assert one.call_later(1, print).when() == 6.0


def test_the_chain_of_super_calls(loop_class):
    order = []

    class First(loop_class):
        def call_soon(self, callback, *args, context=None):
            order.append("first")
            return super().call_soon(callback, *args, context=context)

    class Second(First):
        def call_soon(self, callback, *args, context=None):
            order.append("second")
            return super().call_soon(callback, *args, context=context)

        def call_later(self, delay, callback, *args, context=None):
            order.append("later")
            return super().call_later(delay, callback, *args, context=context)

    loop, got = Second(), []
    loop.call_soon(got.append, 1)
    loop.call_later(0, got.append, 2)
    loop.stop()
    loop.run_forever()
    loop.close()
    assert got == [1, 2]
    assert order == ["second", "first", "later"]


def test_a_subclass_with_state_of_its_own(loop_class):
    """__init__, attributes, properties and methods of a subclass are its own."""

    class Mine(loop_class):
        def __init__(self, name):
            super().__init__()
            self.name = name
            self.closed_by_me = False

        @property
        def shout(self):
            return self.name.upper()

        def close(self):
            self.closed_by_me = True
            super().close()

    with asyncio.Runner(loop_factory=lambda: Mine("x")) as runner:
        loop = runner.get_loop()
        assert runner.run(asyncio.sleep(0, 3)) == 3
        assert isinstance(loop, loop_class)
        assert loop.shout == "X"
    assert loop.closed_by_me
    assert loop.is_closed()


def test_a_loop_that_counts_its_turns_by_call_soon(loop_class):
    """An override that schedules itself in every turn."""

    class Ticking(loop_class):
        ticks = 0

        def tick(self):
            self.ticks += 1
            if self.ticks < 50:
                self.call_soon(self.tick)
            else:
                self.stop()

    loop = Ticking()
    loop.call_soon(loop.tick)
    run_until_stopped(loop)
    loop.close()
    assert loop.ticks == 50
