"""The surface: the public names and signatures of uvpy.Loop are those of asyncio's loop."""

import asyncio
import inspect

import pytest

pytestmark = pytest.mark.uvpy_only("compares uvpy's loop with asyncio's")

OWN = {"gather_writes"}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def names():
    return sorted(public(asyncio.SelectorEventLoop))


def test_the_names_are_asyncios_and_a_few_of_our_own(loop_class):
    missing = public(asyncio.SelectorEventLoop) - public(loop_class)
    added = public(loop_class) - public(asyncio.SelectorEventLoop)
    assert missing == set()
    assert added <= OWN


def test_instances_have_asyncios_attributes(loop):
    oracle = asyncio.SelectorEventLoop()
    oracle.close()
    missing = {n for n in dir(oracle) if not n.startswith("_")} - {n for n in dir(loop) if not n.startswith("_")}
    assert missing == set()
    assert loop.slow_callback_duration == oracle.slow_callback_duration


def test_the_loop_is_asyncios_by_type(loop, loop_class):
    import uvpy

    assert loop_class is uvpy.Loop
    assert isinstance(loop, asyncio.AbstractEventLoop)
    assert isinstance(loop, asyncio.BaseEventLoop)
    assert type(loop) is uvpy.Loop
    assert uvpy.Loop.__module__ in ("uvpy", "uvpy._loop")
    assert uvpy.Loop.__doc__


def parameters(function):
    """The parameters of a method without self: name, kind, whether it has a default."""
    signature = inspect.signature(function)
    found = [(p.name, p.kind, p.default is not p.empty) for p in signature.parameters.values()]
    return [p for p in found if p[0] not in ("self", "$self")]


@pytest.mark.parametrize("name", names())
def test_signatures_are_asyncios(loop_class, name):
    """Same parameters in the same order; what asyncio takes by position or keyword, ours does."""
    theirs, ours = getattr(asyncio.SelectorEventLoop, name), getattr(loop_class, name)
    if not callable(theirs):
        return
    try:
        got = parameters(ours)
    except ValueError:
        pytest.fail(f"{name} has no signature that inspect understands")
    want = parameters(theirs)
    assert got == want


@pytest.mark.parametrize("name", names())
def test_coroutine_functions_are_the_same_ones(loop_class, name):
    theirs, ours = getattr(asyncio.SelectorEventLoop, name), getattr(loop_class, name)
    assert inspect.iscoroutinefunction(ours) is inspect.iscoroutinefunction(theirs)


def test_keywords_are_taken_as_asyncio_takes_them(loop, sockets):
    """The native methods take their parameters by keyword, too."""
    a, _ = sockets.pair()
    got = []
    loop.call_soon(callback=got.clear)
    loop.call_soon_threadsafe(callback=bool, context=None)
    loop.call_later(delay=0, callback=bool).cancel()
    loop.call_at(when=0, callback=bool, context=None).cancel()
    loop.add_reader(fd=a, callback=print)
    loop.add_writer(fd=a, callback=print)
    assert loop.remove_reader(fd=a) is True
    assert loop.remove_writer(fd=a) is True
    loop.set_debug(enabled=False)
    loop.set_exception_handler(handler=None)
    loop.set_task_factory(factory=None)
    task = loop.create_task(coro=asyncio.sleep(0))
    loop.run_until_complete(future=task)


def test_native_methods_have_documentation(loop_class):
    for name in names():
        if getattr(asyncio.SelectorEventLoop, name).__doc__:
            assert getattr(loop_class, name).__doc__, name


def test_the_loop_cannot_be_pickled_or_copied(loop):
    import copy
    import pickle

    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(loop)


def refuses_attributes(kind):
    try:
        kind.something = 1
    except TypeError:
        return True
    del kind.something
    return False


def test_types_of_the_extension_are_closed(loop):
    """Handles and transports are not made by users, and crash nobody who tries."""
    import uvpy._core as core

    for name, kind in vars(core).items():
        if isinstance(kind, type) and name != "Loop":
            for arguments in ((), (None,), (loop,), (1, 2, 3)):
                try:
                    thing = kind(*arguments)
                    repr(thing)
                    del thing
                except (TypeError, ValueError, RuntimeError, AttributeError):
                    pass


def test_the_native_loop_alone(loop):
    """The C type behind uvpy.Loop can be touched without harm."""
    import uvpy._core as core

    assert refuses_attributes(core.Loop)
    for arguments in ((1,), ("adaptive",), (None, None)):
        with pytest.raises(TypeError):
            core.Loop(*arguments)
