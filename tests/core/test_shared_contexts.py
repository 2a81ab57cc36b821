"""The contexts that callbacks run in where none is given: each has its own, however many were scheduled alike."""

import contextvars
import gc
import sysconfig
import weakref

import pytest
import uvpy

from support.drive import turn

VAR = contextvars.ContextVar("VAR", default="none")
MANY = 50


class Thing:
    pass


def test_what_a_callback_sets_the_next_one_does_not_see(loop):
    got = []
    for i in range(MANY):
        loop.call_soon(lambda i=i: (got.append(VAR.get()), VAR.set(i) if i % 3 == 0 else None))
    turn(loop)
    assert got == ["none"] * MANY


def test_a_chain_carries_on_what_it_sets(loop):
    got = []

    def link(i):
        got.append(VAR.get())
        if i % 3 == 0:
            VAR.set(i)
        if i < 9:
            loop.call_soon(link, i + 1)

    loop.call_soon(link, 0)
    loop.call_soon(lambda: got.append("beside"))
    turn(loop, 12)
    assert got == ["none", "beside", 0, 0, 0, 3, 3, 3, 6, 6, 6]


def test_what_is_set_between_two_calls_is_for_the_second(loop):
    got = []

    def work():
        for i in range(4):
            loop.call_soon(lambda: got.append(VAR.get()))
            VAR.set(i)
        loop.call_soon(lambda: got.append(VAR.get()))

    contextvars.copy_context().run(work)
    turn(loop)
    assert got == ["none", 0, 1, 2, 3]


def test_the_same_value_put_back(loop):
    """A token is good in the context that gave it alone."""
    got, tokens = [], []

    def put_back():
        try:
            VAR.reset(tokens[0])
        except ValueError as error:
            got.append(type(error))

    loop.call_soon(lambda: tokens.append(VAR.set("a")))
    loop.call_soon(lambda: VAR.reset(VAR.set("b")))
    for _ in range(3):
        loop.call_soon(put_back)
    loop.call_soon(lambda: got.append(VAR.get()))
    turn(loop)
    assert got == [ValueError] * 3 + ["none"]


def test_two_chains_that_differ(loop):
    got = []

    def link(i):
        got.append(VAR.get())
        if i:
            loop.call_soon(link, i - 1)

    for name in ("a", "b"):
        contextvars.copy_context().run(lambda name=name: (VAR.set(name), loop.call_soon(link, 5)))
    turn(loop, 8)
    assert got == ["a", "b"] * 6


def test_a_handle_gives_its_own_context(loop):
    one, two = (loop.call_soon(lambda: None) for _ in range(2))
    assert one._context is one._context
    assert one._context is not two._context
    context = one._context
    turn(loop)
    assert one._context is context
    assert two._context is not context


def test_the_context_of_a_running_callback(loop):
    got = []

    def work():
        VAR.set("mine")
        context = handle._context
        got.append(context[VAR])
        with pytest.raises(RuntimeError, match="already entered"):
            context.run(lambda: None)

    handle = loop.call_soon(work)
    other = loop.call_soon(lambda: None)
    turn(loop)
    assert got == ["mine"]
    assert handle._context[VAR] == "mine"
    assert VAR not in other._context


def test_a_timer_scheduled_beside_callbacks(loop):
    got = []
    loop.call_later(0, lambda: (got.append(VAR.get()), VAR.set("timer")))
    loop.call_soon(lambda: (got.append(VAR.get()), VAR.set("soon")))
    loop.call_soon(lambda: got.append(VAR.get()))
    turn(loop, 2)
    assert got == ["none"] * 3


def test_a_callback_that_runs_another_handle(loop):
    got = []
    inner = [loop.call_soon(lambda: (got.append(VAR.get()), VAR.set("inner"))) for _ in range(2)]
    loop.call_soon(lambda: (VAR.set("outer"), inner[0]._run(), got.append(VAR.get()), inner[0].cancel()))
    loop.call_soon(lambda: got.append(VAR.get()))
    turn(loop)
    assert got == ["none", "none", "inner", "outer", "none"]


def test_a_reader_keeps_what_it_sets(loop, pair):
    ours, theirs = pair()
    got = []

    def readable():
        got.append(VAR.get())
        if len(got) == 3:
            VAR.set("reader")
        loop.call_soon(lambda: VAR.set("soon"))

    loop.add_reader(ours.fileno(), readable)
    loop.call_soon(lambda: None)
    theirs.send(b"x")
    while len(got) < 6:
        turn(loop)
    loop.remove_reader(ours.fileno())
    assert got == ["none"] * 3 + ["reader"] * 3


@pytest.mark.parametrize("how", ["run", "cancelled", "set again"])
def test_values_live_no_longer_than_the_callbacks(loop, how):
    thing = Thing()
    gone = weakref.ref(thing)

    def work(thing):
        VAR.set(thing)
        for _ in range(3):
            handle = loop.call_soon(lambda: VAR.set(None) if how == "set again" else None)
            if how == "cancelled":
                handle.cancel()

    contextvars.copy_context().run(work, thing)
    del thing
    seen = []
    loop.call_soon(lambda: seen.append(gone()))
    turn(loop, 2)
    assert gone() is None
    if how == "run":
        assert seen == [None]


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="not shared without a GIL")
def test_callbacks_scheduled_alike_make_no_contexts():
    """What keeps the garbage collector from being started by them."""
    loop = uvpy.new_event_loop()

    def contexts():
        return sum(type(thing) is contextvars.Context for thing in gc.get_objects())

    made = []

    def schedules():
        before = contexts()
        for _ in range(MANY):
            loop.call_soon(lambda: None)
        made.append(contexts() - before)
        loop.call_soon(lambda: made.append(contexts() - before))

    try:
        loop.call_soon(schedules)
        turn(loop, 3)
        assert len(made) == 2
        assert max(made) <= 2
    finally:
        loop.close()


def test_a_context_that_was_seen_stays_its_handles(loop):
    """A weak reference to it, too, is to a context that no other callback runs in."""
    secret = contextvars.ContextVar("secret")
    seen, got = [], []

    def first():
        seen.append(weakref.ref(handles[0]._context))

    def second():
        secret.set("the second's")
        context = seen[0]()
        got.append(context if context is None else context.get(secret))

    handles = []
    loop.call_soon(lambda: handles.extend((loop.call_soon(first), loop.call_soon(second))))
    turn(loop, 3)
    assert got == [None]


@pytest.mark.parametrize("what", ["schedules and runs", "looks at the context"])
def test_a_value_that_goes_runs_code(loop, what):
    """What a variable had goes when the callback that set another has run; its finalizer does what it likes."""
    other, secret = contextvars.ContextVar("other"), contextvars.ContextVar("secret")
    handles, kept = [], []

    class Goes:
        def __del__(self):
            if what == "schedules and runs":
                other.set(object())
                handle = loop.call_soon(lambda: kept.append(contextvars.copy_context()))
                handle._run()
            else:
                kept.append(handles[0]._context)

    def sets():
        VAR.set(Goes())
        handles.append(loop.call_soon(replaces))

    def replaces():
        VAR.set(1)
        loop.call_soon(secret.set, "of another callback")

    loop.call_soon(loop.call_soon, sets)
    turn(loop, 6)
    assert kept
    assert [context.get(secret) for context in kept] == [None] * len(kept)


def test_a_value_does_not_outlive_what_was_cancelled_before_a_run(loop):
    def schedules():
        thing = Thing()
        VAR.set(thing)
        loop.call_soon(print).cancel()
        loop.call_later(1, print).cancel()
        return weakref.ref(thing)

    seen = contextvars.copy_context().run(schedules)
    turn(loop, 2)
    getattr(loop, "_scheduled", []).clear()
    gc.collect()
    assert seen() is None
