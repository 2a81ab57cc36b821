"""Handles: asyncio's types and texts, contexts, references, finalizers that call back into the loop."""

import asyncio
import contextlib
import contextvars
import functools
import gc
import sys
import threading
import weakref

import pytest

from support.drive import in_thread, turn

VAR = contextvars.ContextVar("VAR", default="none")


def named_callback(*args):
    pass


class Thing:
    def method(self, *args):
        pass

    def __call__(self, *args):
        pass


def three(loop, callback=named_callback, *args, **kwargs):
    """One handle of each kind, not run yet."""
    return (
        loop.call_soon(callback, *args, **kwargs),
        loop.call_later(3600, callback, *args, **kwargs),
        loop.call_soon_threadsafe(callback, *args, **kwargs),
    )


def in_context(value):
    context = contextvars.copy_context()
    context.run(VAR.set, value)
    return context


def test_handles_are_of_asyncios_types(loop):
    soon, timer, safe = three(loop)
    for handle in (soon, safe):
        assert isinstance(handle, asyncio.Handle)
        assert not isinstance(handle, asyncio.TimerHandle)
    assert isinstance(timer, asyncio.TimerHandle)
    assert isinstance(timer, asyncio.Handle)
    assert isinstance(loop.call_at(0, named_callback), asyncio.TimerHandle)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    ("callback", "args"),
    [
        (named_callback, ()),
        (named_callback, (1, "x", None)),
        (Thing().method, ("a" * 500,)),
        (Thing(), ([1, 2],)),
        (functools.partial(named_callback, 1, key=2), (3,)),
        (functools.partial(functools.partial(named_callback), 5), ()),
        ([].append, (7,)),
        (print, ()),
        (Thing, ()),
        (lambda: None, ()),
    ],
    ids=[
        "function",
        "args",
        "method",
        "instance",
        "partial",
        "partials",
        "builtin method",
        "builtin",
        "class",
        "lambda",
    ],
)
def test_texts_are_asyncios(loop, callback, args, debug):
    """repr() is what asyncio's own handle of the same callback says, waiting and cancelled."""
    loop.set_debug(debug)

    def text(handle):
        return repr(handle).split(" created at ")[0].rstrip(">")

    soon, timer, _ = three(loop, callback, *args)
    like = asyncio.Handle(callback, args, loop)
    like_timer = asyncio.TimerHandle(timer.when(), callback, args, loop)
    assert text(soon) == text(like)
    assert text(timer) == text(like_timer)
    for handle in (soon, timer, like, like_timer):
        handle.cancel()
    assert text(soon) == text(like)
    assert text(timer) == text(like_timer)


def test_a_handle_that_ran_has_asyncios_text(loop):
    soon = loop.call_soon(named_callback, 1)
    turn(loop)
    assert repr(soon) == repr(asyncio.Handle(named_callback, (1,), loop))


def test_debug_texts_say_where_the_handle_was_made(loop):
    loop.set_debug(True)
    for handle in three(loop):
        line = three.__code__.co_firstlineno
        place = repr(handle).split(" created at ")[1].rstrip(">")
        name, number = place.rsplit(":", 1)
        assert name == __file__
        assert line < int(number) < line + 7
        handle.cancel()
        assert "created at" in repr(handle)


def test_the_text_of_a_callback_that_cannot_be_printed(loop):
    class Bad:
        def __repr__(self):
            raise ZeroDivisionError

        def __call__(self, *args):
            pass

    for handle in three(loop, Bad(), Bad()):
        with contextlib.suppress(ZeroDivisionError):
            repr(handle)
        handle.cancel()
    turn(loop)


# ---- contexts


def test_a_given_context_is_used_and_kept(loop):
    got = []
    for n, call in enumerate(
        (
            loop.call_soon,
            loop.call_soon_threadsafe,
            functools.partial(loop.call_later, 0),
            functools.partial(loop.call_at, 0),
        )
    ):
        context = in_context(n)
        call(lambda: (got.append(VAR.get()), VAR.set("changed")), context=context)
        turn(loop)
        assert got[-1] == n
        assert context[VAR] == "changed"
    assert VAR.get() == "none"


def test_without_a_context_a_copy_is_taken_at_the_call(loop):
    got = []

    def work():
        VAR.set("then")
        three_calls = (loop.call_soon, loop.call_soon_threadsafe, functools.partial(loop.call_later, 0))
        for call in three_calls:
            call(lambda: (got.append(VAR.get()), VAR.set("mine")))
        VAR.set("now")

    contextvars.copy_context().run(work)
    turn(loop, 2)
    assert got == ["then"] * 3
    assert VAR.get() == "none"


def test_one_context_for_many_callbacks(loop):
    """What one callback sets in a shared context the next one sees."""
    got, context = [], contextvars.copy_context()
    for i in range(4):
        loop.call_soon(lambda i=i: (got.append(VAR.get()), VAR.set(i)), context=context)
    turn(loop)
    assert got == ["none", 0, 1, 2]


def test_a_callback_inherits_its_makers_context(loop):
    got = []

    def first():
        VAR.set("first")
        loop.call_soon(lambda: got.append(VAR.get()))
        loop.call_later(0, lambda: got.append(VAR.get()))

    loop.call_soon(first)
    loop.call_soon(lambda: got.append(VAR.get()))
    turn(loop, 3)
    assert got == ["none", "first", "first"]


def test_a_context_that_is_entered_already(loop, errors, log):
    """Running a callback in the context that the caller of the loop is in is an error of that callback, as in
    asyncio.
    """
    context, got = contextvars.copy_context(), []
    loop.call_soon(got.append, 1, context=context)
    loop.call_soon(got.append, 2)
    context.run(turn, loop)
    assert got == [2]
    if sys.version_info < (3, 12):
        (error,) = errors.take()
        assert isinstance(error["exception"], RuntimeError)
        assert "is already entered" in str(error["exception"])
    else:  # the handler, which runs in the same context, cannot be called either
        (record,) = log.take()
        assert record.getMessage().startswith("Unhandled error in exception handler")


def test_the_context_of_a_thread_goes_with_its_call(loop):
    got = []

    def work():
        VAR.set("thread")
        loop.call_soon_threadsafe(lambda: got.append(VAR.get()))

    in_thread(work)
    turn(loop)
    assert got == ["thread"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Handle.get_context() is new in 3.12")
def test_get_context(loop):
    context = contextvars.copy_context()
    for handle in three(loop, context=context):
        assert handle.get_context() is context
        handle.cancel()
        assert handle.get_context() is context
    for handle in three(loop):
        assert type(handle.get_context()) is contextvars.Context


# ---- what a handle is as an object


def test_handles_compare_as_asyncios(loop):
    a, b = loop.call_at(1000, named_callback), loop.call_at(2000, named_callback)
    same = loop.call_at(1000, named_callback)
    assert a < b and a <= b and b > a and b >= a and a != b
    assert not (b < a or b <= a or a > b or a >= b)
    assert a == same and a <= same and a >= same and not a < same
    assert a != 1000 and a != "x"
    assert hash(a) == hash(asyncio.TimerHandle(1000, named_callback, (), loop))
    for wrong in (1000, None, "x", object()):
        with pytest.raises(TypeError):
            assert a < wrong
    assert sorted([b, same, a])[-1] is b
    soon, other = loop.call_soon(named_callback), loop.call_soon(named_callback)
    assert soon == soon and soon != other
    assert len({soon, other, soon}) == 2


def test_handles_of_every_kind_can_be_weakly_referenced(loop):
    for handle in three(loop):
        assert weakref.ref(handle)() is handle
        assert weakref.WeakSet([handle])
        handle.cancel()


def test_a_weak_reference_dies_with_the_handle(loop):
    dead = []
    ref = weakref.ref(loop.call_soon(named_callback), dead.append)
    turn(loop)
    assert ref() is None
    assert dead == [ref]


def test_handles_have_no_dictionary(loop):
    for handle in three(loop):
        with pytest.raises(AttributeError):
            handle.something = 1


def test_cancel_is_idempotent_everywhere(loop):
    for handle in three(loop):
        assert handle.cancelled() is False
        for _ in range(3):
            assert handle.cancel() is None
            assert handle.cancelled() is True
    turn(loop)


def test_cancelled_stays_false_after_a_run(loop):
    soon = loop.call_soon(named_callback)
    timer = loop.call_later(0, named_callback)
    turn(loop)
    assert (soon.cancelled(), timer.cancelled()) == (False, False)


# ---- references


def counts(*things):
    gc.collect()
    return [sys.getrefcount(t) for t in things]


def test_references_are_given_back_after_a_run(loop):
    call, argument, context = Thing(), Thing(), contextvars.copy_context()
    before = counts(call, argument, context)
    for _ in range(200):
        loop.call_soon(call)
        loop.call_soon(call, argument, context=context)
        loop.call_soon(call, argument, argument, argument)
        loop.call_soon(call.method, argument)
        loop.call_later(0, call, argument, context=context)
        loop.call_at(0, call, argument, argument)
        loop.call_soon_threadsafe(call, argument, context=context)
    turn(loop, 2)
    assert counts(call, argument, context) == before


def test_references_are_given_back_after_cancel(loop):
    call, argument, context = Thing(), Thing(), contextvars.copy_context()
    before = counts(call, argument, context)
    for _ in range(200):
        for handle in three(loop, call, argument, argument, context=context):
            handle.cancel()
        loop.call_soon(call.method, argument).cancel()
    del handle
    turn(loop)
    loop.close()
    assert counts(call, argument, context) == before


def test_references_are_given_back_after_errors(loop, errors):
    def fail(*args):
        raise ZeroDivisionError

    argument, context = Thing(), contextvars.copy_context()
    before = counts(fail, argument, context)
    for _ in range(50):
        loop.call_soon(fail, argument, context=context)
        loop.call_later(0, fail, argument, argument)
        for junk in ((), (1, 2), (None,)):
            with pytest.raises(TypeError):
                loop.call_soon(fail, *junk, context=context, other=argument)
    turn(loop)
    assert len(errors.take()) == 100
    assert counts(fail, argument, context) == before


def test_references_are_given_back_after_an_interrupt_and_close(loop):
    def interrupt(*args):
        raise KeyboardInterrupt

    call, argument = Thing(), Thing()
    before = counts(call, argument)
    loop.call_soon(interrupt, argument)
    for _ in range(20):
        three(loop, call, argument, argument)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.close()
    assert counts(call, argument) == before


def test_a_cycle_through_a_handle_is_collected(loop):
    """A callback that refers to its own handle, run, cancelled or lost with the loop, is garbage like any other
    cycle.
    """
    alive = []
    for end in ("run", "cancelled", "closed"):
        thing = Thing()
        thing.handles = three(loop, thing.method, thing)
        alive.append(weakref.ref(thing))
        if end == "run":
            turn(loop)
            thing.handles[1].cancel()
        elif end == "cancelled":
            for handle in thing.handles:
                handle.cancel()
            del handle
            turn(loop)
        del thing
    loop.close()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


def test_a_loop_in_a_cycle_with_its_callbacks_is_collected(raw_loop, kind):
    loop = raw_loop()
    thing = Thing()
    thing.loop = loop
    three(loop, thing.method, thing)
    loop.set_exception_handler(thing.method)
    loop.close()
    alive = weakref.ref(thing)
    del thing
    gc.collect()
    assert alive() is not None  # the loop, which we hold, refers to it as its exception handler
    loop.set_exception_handler(None)
    gc.collect()
    assert alive() is None


# ---- finalizers


class Finalized:
    """Calls a function when it dies."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *args):
        pass

    def __del__(self):
        self.fn()


def test_finalizers_may_schedule_and_cancel(loop):
    """An argument or callback whose __del__ uses the loop works wherever the loop lets go of it."""
    got, others = [], [loop.call_later(3600, named_callback) for _ in range(100)]

    def final(name):
        got.append(name)
        loop.call_soon(got.append, f"soon {name}")
        loop.call_soon_threadsafe(got.append, f"safe {name}")
        loop.call_later(0, got.append, f"timer {name}")
        others.pop().cancel()
        gc.collect()

    makes = {
        "argument": lambda f: loop.call_soon(named_callback, f),
        "arguments": lambda f: loop.call_soon(named_callback, 1, f, 2),
        "callback": lambda f: loop.call_soon(f),
        "timer": lambda f: loop.call_later(0, named_callback, f),
        "threadsafe": lambda f: loop.call_soon_threadsafe(f, 1),
        "cancelled": lambda f: loop.call_soon(named_callback, f).cancel(),
        "cancelled timer": lambda f: loop.call_later(3600, f).cancel(),
        "cancelled threadsafe": lambda f: loop.call_soon_threadsafe(f).cancel(),
    }
    for name, make in makes.items():
        make(Finalized(functools.partial(final, name)))
    turn(loop, 4)
    assert sorted(got) == sorted([*makes, *(f"{what} {name}" for name in makes for what in ("soon", "safe", "timer"))])


def test_a_finalizer_at_close_finds_a_closed_loop(loop):
    got = []

    def final():
        try:
            loop.call_soon(print)
        except RuntimeError as exc:
            got.append(str(exc))

    three(loop, Finalized(final))
    three(loop, named_callback, Finalized(final))
    loop.close()
    gc.collect()
    assert got == ["Event loop is closed"] * 2


def test_a_finalizer_that_raises_is_unraisable_only(loop, unraisable):
    got = []

    def final():
        raise ZeroDivisionError("in __del__")

    loop.call_soon(named_callback, Finalized(final))
    loop.call_later(3600, Finalized(final)).cancel()
    loop.call_soon(got.append, 1)
    turn(loop)
    assert got == [1]
    assert [type(exc) for exc, _ in unraisable.take()] == [ZeroDivisionError] * 2


def test_a_finalizer_in_another_thread_may_call_the_loop(loop):
    got = []
    thing = Finalized(lambda: loop.call_soon_threadsafe(got.append, threading.get_ident()))
    box = [thing]
    del thing
    ident = in_thread(lambda: (box.clear(), threading.get_ident())[1])
    turn(loop)
    assert got == [ident]


def test_collecting_in_every_callback(loop):
    """The collector running in each callback, also on young handles, changes nothing."""
    got = []

    def work(n):
        gc.collect()
        got.append(n)
        if n < 20:
            loop.call_soon(work, n + 1)
            loop.call_later(0, gc.collect)
            loop.call_soon_threadsafe(gc.collect, 0).cancel()

    loop.call_soon(work, 0)
    turn(loop, 24)
    assert got == list(range(21))


class Holder:
    """With what a callback of its own needs for a cycle."""

    handle = None

    def schedule(self, loop, then=lambda: None):
        self.handle = loop.call_soon(self.work, then)

    def work(self, then):
        then()


@pytest.mark.parametrize("how", ["run", "cancelled", "collected while it runs", "stopped before", "closed before"])
def test_a_handle_in_a_cycle_is_collected(loop, how):
    """Whatever becomes of it in a loop that runs."""
    holder = Holder()
    gone = weakref.ref(holder)

    def work(holder):
        holder.schedule(loop, gc.collect if how == "collected while it runs" else lambda: None)
        if how == "cancelled":
            holder.handle.cancel()
        if "before" in how:
            loop.stop()

    loop.call_soon(work, holder)
    turn(loop, 1 if "before" in how else 3)
    if how == "closed before":
        loop.close()
    elif how == "stopped before":
        assert gc.is_tracked(holder.handle)
        turn(loop, 2)
    del holder
    gc.collect()
    assert gone() is None


def test_a_loop_left_with_callbacks_is_collected(make_loop):
    loop = make_loop()
    holder = Holder()
    loop.set_debug(False)
    loop.call_soon(holder.schedule, loop)
    loop.call_soon(loop.call_soon, holder.work, lambda: None)
    loop.call_soon(loop.stop)
    loop.run_forever()
    gone = weakref.ref(loop), weakref.ref(holder)
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        del loop, holder
        gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_collections_while_callbacks_wait(loop):
    got = []
    for i in range(20):
        loop.call_soon(lambda i=i: (loop.call_soon(got.append, [i]), gc.collect()))
    turn(loop, 2)
    assert got == [[i] for i in range(20)]
