"""Methods patched on the class, as tests and libraries do: every method is a function to whoever looks at it."""

import asyncio
import functools
import inspect
import os
import pickle
import sys
import types
import weakref
from unittest import mock

import pytest

from support.drive import run, run_until_stopped, turn
from support.protocols import Recorder, drop


def public_methods(kind):
    return sorted(n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n)))


NAMES = public_methods(asyncio.SelectorEventLoop)


@pytest.mark.parametrize("name", NAMES)
def test_methods_are_functions(loop, loop_class, name):
    function, bound = getattr(loop_class, name), getattr(loop, name)
    assert type(function) is types.FunctionType
    assert function is getattr(loop_class, name)
    assert type(bound) is types.MethodType
    assert bound.__self__ is loop
    assert bound.__func__ == function
    assert hash(bound.__func__) == hash(function)
    assert bound == getattr(loop, name)
    assert bound != getattr(loop, "stop" if name != "stop" else "run_forever")
    assert function.__name__ == bound.__name__ == name
    assert function.__qualname__.endswith(f".{name}")
    assert pickle.loads(pickle.dumps(function)) is function
    assert weakref.WeakMethod(bound)() == bound
    assert inspect.ismethod(bound)
    assert inspect.isfunction(function)
    assert inspect.signature(bound).parameters.keys() == inspect.signature(function).parameters.keys() - {"self"}
    assert functools.wraps(function)(lambda: None).__name__ == name
    with pytest.raises(TypeError):
        function()


@pytest.mark.parametrize("name", NAMES)
def test_autospec_on_the_class_has_self(loop, loop_class, name):
    """The mock is a method: it is called with the loop, and refuses what the method's signature refuses."""
    is_coroutine = inspect.iscoroutinefunction(getattr(loop_class, name))
    with mock.patch.object(loop_class, name, autospec=True) as spy:
        if not is_coroutine:  # whose mocks say so when they are awaited
            with pytest.raises(TypeError):
                getattr(loop, name)(1, 2, 3, 4, 5, no_such_keyword=1)
            spy.reset_mock()
        required = [
            p
            for p in inspect.signature(getattr(loop, name)).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        answer = getattr(loop, name)(*required)
        if inspect.iscoroutine(answer):
            answer.close()
        else:
            spy.assert_called_once_with(loop, *required)
    assert type(getattr(loop_class, name)) is types.FunctionType


class Spy:
    """Patches methods of a class with autospec, the originals under them, and counts."""

    def __init__(self, loop_class, *names):
        self.patches = {
            name: mock.patch.object(loop_class, name, autospec=True, side_effect=getattr(loop_class, name))
            for name in names
        }

    def __enter__(self):
        self.mocks = {name: patch.start() for name, patch in self.patches.items()}
        return self

    def __exit__(self, *exc):
        for patch in self.patches.values():
            patch.stop()

    def called(self, name):
        return self.mocks[name].call_count


def test_patched_scheduling_is_used_everywhere(loop, loop_class):
    with Spy(loop_class, "call_soon", "call_later", "call_at", "time", "create_task", "create_future", "stop") as spy:

        async def main():
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            await asyncio.wait_for(asyncio.create_task(asyncio.sleep(0)), 5)
            loop.call_later(0, bool)

        run(loop, main())
        assert all(spy.called(name) for name in spy.mocks), {n: spy.called(n) for n in spy.mocks}
        soon = spy.called("call_soon")
    run(loop, asyncio.sleep(0))
    assert spy.called("call_soon") == soon


def test_patched_running_is_used(loop, loop_class):
    with Spy(loop_class, "run_forever", "run_until_complete", "is_running", "is_closed", "get_debug", "close") as spy:
        loop.run_until_complete(asyncio.sleep(0))
        assert inspect.iscoroutinefunction(loop_class.sock_recv)
        other = loop_class()
        other.close()
    assert spy.called("run_forever") == spy.called("run_until_complete") == spy.called("close") == 1
    assert spy.called("is_running")
    assert spy.called("is_closed")


def test_patched_watchers_and_signals(loop, loop_class):
    with Spy(loop_class, "add_reader", "remove_reader", "add_writer", "call_soon_threadsafe") as spy:
        r, w = os.pipe()
        got = []
        loop.add_reader(r, lambda: (got.append(os.read(r, 1)), loop.stop()))
        loop.add_writer(w, lambda: (os.write(w, b"x"), loop.remove_writer(w)))
        run_until_stopped(loop)
        assert loop.remove_reader(r) is True
        os.close(r)
        os.close(w)
        loop.run_until_complete(loop.run_in_executor(None, bool))
    assert got == [b"x"]
    assert [spy.called(name) for name in ("add_reader", "remove_reader", "add_writer")] == [1, 1, 1]
    assert spy.called("call_soon_threadsafe") >= 1


def test_patched_call_soon_is_used_by_transports(loop, loop_class, sockets):
    async def main():
        ours, _ = sockets.pair()
        with Spy(loop_class, "call_soon") as spy:
            transport, protocol = await loop.create_connection(Recorder, sock=ours)
            before = spy.called("call_soon")
            transport.close()
            assert spy.called("call_soon") > before
            await protocol.lost()

    run(loop, main())


@pytest.mark.parametrize("patched", ["class", "instance", "subclass"])
def test_a_patched_clock(loop_class, patched, errors):
    """A clock that stands still, and is then moved: timers follow it."""
    clock = [1000.0]
    kind = type("Mine", (loop_class,), {}) if patched == "subclass" else loop_class
    loop = kind()
    with mock.patch.object(loop if patched == "instance" else kind, "time", side_effect=lambda *self: clock[0]):
        got = []
        loop.call_later(3600, got.append, 1)
        turn(loop, 3)
        assert got == []
        clock[0] += 3601
        turn(loop, 3)
        assert got == [1]
    loop.close()


def test_specs_of_the_class(loop, loop_class):
    """mock's other ways of looking at a class."""
    fake = mock.create_autospec(loop_class, instance=True)
    fake.call_soon(print, 1, context=None)
    fake.call_later(1, print)
    fake.add_reader(1, print)
    fake.create_task.return_value = 5
    assert fake.create_task(None, name="x") == 5
    for wrong in (fake.call_soon, fake.call_later, fake.remove_reader):
        with pytest.raises(TypeError):
            wrong()
    assert isinstance(fake, asyncio.AbstractEventLoop)
    assert mock.create_autospec(loop_class)().call_soon(print)
    with pytest.raises(AttributeError):
        mock.Mock(spec=loop_class).no_such_method()
    of_instance = mock.create_autospec(loop)
    of_instance.call_soon(print)
    with pytest.raises(TypeError):
        of_instance.call_soon()
    with mock.patch.object(loop, "call_soon", autospec=True) as spy:
        loop.call_soon(print)
        spy.assert_called_once_with(print)
        with pytest.raises(TypeError):
            loop.call_soon()


def test_methods_called_through_the_class(loop, loop_class):
    """As overrides in subclasses do that name the base, by position and by keyword."""
    got = []
    loop_class.call_soon(loop, got.append, 1)
    loop_class.call_soon(loop, callback=bool)
    loop_class.call_soon(self=loop, callback=lambda: got.append(2))
    loop_class.call_soon_threadsafe(loop, got.append, 3, context=None)
    loop_class.call_later(loop, 0, got.append, 4)
    loop_class.call_at(loop, when=0, callback=lambda: got.append(5))
    assert loop_class.time(loop) <= loop.time()
    assert loop_class.is_running(self=loop) is False
    assert loop_class.get_debug(loop) is False
    turn(loop, 2)
    assert sorted(got) == [1, 2, 3, 4, 5]
    assert isinstance(loop_class.create_future(loop), asyncio.Future)
    assert loop_class.remove_reader(loop, 0) is False
    loop.run_until_complete(loop_class.create_task(loop, asyncio.sleep(0), name="x"))
    for wrong in (object(), None, 1, loop_class):
        with pytest.raises((TypeError, AttributeError)):
            loop_class.call_soon(wrong, print)


def test_a_method_that_was_fetched_is_the_method(loop):
    """Bound methods kept by users, called by position and keyword, and with a wrong count of arguments."""
    soon, later, stop, now = loop.call_soon, loop.call_later, loop.stop, loop.time
    got = []
    soon(got.append, 1)
    soon(callback=lambda: got.append(2))
    soon(*[got.append, 3], context=None)
    later(0.001, stop)
    loop.run_forever()
    assert got == [1, 2, 3]
    assert isinstance(now(), float)
    for wrong in (lambda: soon(), lambda: now(1), lambda: stop(x=1), lambda: later(1)):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.uvpy_only("the functions are of uvpy's making")
def test_no_body_and_no_method_is_lost():
    """Each native method has its function, and a body that does the same for profilers that run it."""
    import uvpy
    from uvpy import _core

    natives = {n: m for n, m in vars(_core.Loop).items() if isinstance(m, types.MethodDescriptorType)}
    assert len(natives) > 30
    for name in natives:
        if not name.startswith("__"):
            function = getattr(uvpy.Loop, name)
            assert type(function) is types.FunctionType, name
            if function.__closure__ is not None and function.__code__.co_freevars == ("native",):
                assert function.__closure__[0].cell_contents is natives[name]
                assert function.__doc__ == natives[name].__doc__
    loop = uvpy.Loop()
    body = types.FunctionType(
        uvpy.Loop.call_later.__code__, {}, "body", uvpy.Loop.call_later.__defaults__, uvpy.Loop.call_later.__closure__
    )
    body.__kwdefaults__ = uvpy.Loop.call_later.__kwdefaults__
    got = []
    body(loop, 0, got.append, 1)
    turn(loop, 2)
    assert got == [1]
    loop.close()
    for wrong in ((), (1, 2), (lambda: 1, 2), (test_no_body_and_no_method_is_lost, 1)):
        with pytest.raises(TypeError):
            _core.native_function(*wrong)


@pytest.mark.parametrize("tool", ["settrace", "setprofile"])
def test_traced_and_profiled_calls(loop, tool):
    """Debuggers and profilers change nothing."""
    events = []
    getattr(sys, tool)(lambda frame, event, arg: events.append(event))
    try:
        got = []
        loop.call_soon(got.append, 1)
        loop.call_later(0, got.append, 2)
        turn(loop, 2)
    finally:
        getattr(sys, tool)(None)
    assert got == [1, 2]
    assert events


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
@pytest.mark.uvpy_only("the functions are of uvpy's making")
@pytest.mark.parametrize("watched", [True, False])
def test_no_interpreter_runs_the_body(watched):
    """Called often enough to be specialised, in every way a call is compiled to, watched by a tool and not."""
    import uvpy

    loop = uvpy.Loop()
    bodies = {kind.__code__ for kind in vars(uvpy.Loop).values() if hasattr(kind, "__code__")}
    bodies = {code for code in bodies if code.co_freevars == ("native",)}
    assert len(bodies) > 30
    ran, calls = [], []
    monitoring, events = sys.monitoring, sys.monitoring.events
    # Where no tool watches calls the body itself is what would tell, at its first line.
    kept = events.CALL | events.PY_START if watched else 0
    monitoring.use_tool_id(4, "test")
    monitoring.register_callback(4, events.CALL, lambda code, offset, callee, arg: calls.append(callee))
    monitoring.register_callback(4, events.PY_START, lambda code, offset: ran.append(code))
    try:
        for code in bodies:
            monitoring.set_local_events(4, code, events.PY_START)
        monitoring.set_events(4, kept)
        for _ in range(3000):
            assert isinstance(loop.time(), float)
            assert uvpy.Loop.is_running(loop) is False
            loop.call_soon(int, context=None).cancel()
            loop.call_later(*(1, int)).cancel()
            loop.call_at(loop.time() + 1, int).cancel()
    finally:
        monitoring.set_events(4, 0)
        for code in bodies:
            monitoring.set_local_events(4, code, 0)
        monitoring.free_tool_id(4)
        loop.close()
    assert not bodies.intersection(ran)
    assert (uvpy.Loop.time in calls) == watched


def test_dropping_transports_of_patched_loops(loop, loop_class, sockets):
    with Spy(loop_class, "call_soon", "call_exception_handler") as spy:

        async def main():
            ours, _ = sockets.pair()
            transport, _ = await loop.create_connection(Recorder, sock=ours)
            await drop(transport)

        run(loop, main())
        assert spy.called("call_exception_handler") == 0
