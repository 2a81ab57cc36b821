"""The scheduler against a model of asyncio's: programs of every shape give the trace that the model says, on both
loops.

A *program* is a list of steps: statements run from outside, single turns and whole runs. A *statement* schedules a
callback (which is
again a list of statements), cancels one, raises, stops the loop, watches or unwatches a descriptor that is always
readable.
"""

import collections
import contextlib
import copy
import socket
import sys
import threading
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from support.drive import in_thread, start_thread
from support.explore import examples

SCHEDULING = ("soon", "safe", "thread", "past", "far")


class Own(Exception):
    pass


class Handle:
    def __init__(self, number, body, when=0.0):
        self.number, self.body, self.when, self.is_cancelled = number, body, when, False

    def cancel(self):
        self.is_cancelled = True

    def cancelled(self):
        return self.is_cancelled


class Machine:
    """What runs statements: the model and the real loop differ in the methods that the statements call."""

    def __init__(self):
        self.trace, self.handles = [], []

    def execute(self, body):
        for name, *arguments in body:
            if name in SCHEDULING:
                self.schedule(name, *arguments)
            elif name == "cancel":
                if self.handles:
                    self.handles[arguments[0] % len(self.handles)].cancel()
            elif name == "fail":
                raise Own
            elif name == "interrupt":
                raise KeyboardInterrupt("of the program")
            else:
                getattr(self, name)(*arguments)

    def callback(self, number, body):
        self.trace.append(("run", number))
        try:
            self.execute(body)
        except Own:
            self.trace.append(("failed", number))
            raise

    def cancellations(self):
        return [handle.cancelled() for handle in self.handles]


class Model(Machine):
    """asyncio's rules, in a page."""

    def __init__(self, ties):
        super().__init__()
        self.ties, self.ready, self.timers, self.stopping = ties, collections.deque(), [], False
        self.reader = None

    def schedule(self, name, body, offset):
        number = len(self.handles)
        handle = Handle(number, body)
        self.handles.append(handle)
        if name == "past":
            handle.when = -offset if self.ties else -offset - number * 1e-3
            self.timers.append(handle)
        elif name != "far":
            self.ready.append(handle)

    def stop(self):
        self.stopping = True

    def watch(self, body):
        self.unwatch()
        self.reader = Handle("reader", body)

    def unwatch(self):
        if self.reader:
            self.reader.cancel()
            self.reader = None

    def may_run(self):
        """A run would not park for ever, and ends after a few turns."""
        return self.stopping or bool(self.ready or self.reader or any(not t.is_cancelled for t in self.timers))

    def turn(self):
        if self.reader:
            self.ready.append(self.reader)
        due = sorted((t for t in self.timers if not t.is_cancelled), key=lambda t: (t.when, t.number))
        self.timers.clear()
        self.ready.extend(due)
        for _ in range(len(self.ready)):
            handle = self.ready.popleft()
            if not handle.is_cancelled:
                with contextlib.suppress(Own):
                    self.callback(handle.number, handle.body)

    def run(self, limit=40):
        """Until stopped; False when it would not end within so many turns."""
        try:
            for _ in range(limit):
                if not self.may_run():
                    return False
                self.turn()
                if self.stopping:
                    return True
            return False
        except KeyboardInterrupt:
            self.trace.append("interrupted")
            return True
        finally:
            self.stopping = False


class Real(Machine):
    """The same statements on a loop."""

    def __init__(self, loop, ties, sockets):
        super().__init__()
        self.loop, self.ties = loop, ties
        self.base = loop.time() - 1000
        self.watched, peer = sockets
        self.errors = 0
        loop.set_exception_handler(self.on_error)

    def on_error(self, loop, context):
        assert type(context["exception"]) is Own, context
        self.errors += 1

    def schedule(self, name, body, offset):
        number, loop = len(self.handles), self.loop
        if name == "soon":
            handle = loop.call_soon(self.callback, number, body)
        elif name == "safe":
            handle = loop.call_soon_threadsafe(self.callback, number, body)
        elif name == "thread":
            handle = in_thread(loop.call_soon_threadsafe, self.callback, number, body)
        elif name == "past":
            when = self.base - offset if self.ties else self.base - offset - number * 1e-3
            handle = loop.call_at(when, self.callback, number, body)
        else:
            handle = loop.call_later(1000 + offset, self.callback, number, body)
        self.handles.append(handle)

    def stop(self):
        self.loop.stop()

    def watch(self, body):
        self.loop.add_reader(self.watched, self.callback, "reader", body)

    def unwatch(self):
        self.loop.remove_reader(self.watched)

    def run(self):
        try:
            self.loop.run_forever()
        except KeyboardInterrupt as exc:
            self.trace.append("interrupted" if exc.args == ("of the program",) else exc)
        return True


offsets = st.integers(1, 12)


def statements(body):
    scheduling = st.tuples(st.sampled_from(SCHEDULING), body, offsets)
    rare = st.sampled_from([("fail",), ("interrupt",), ("stop",), ("unwatch",)])
    return st.one_of(
        scheduling,
        scheduling,
        scheduling,
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        rare,
        st.tuples(st.just("watch"), body),
    )


bodies = st.recursive(st.just([]), lambda body: st.lists(statements(body), max_size=4), max_leaves=12)
programs = st.lists(st.tuples(bodies, st.sampled_from(["turn", "run", "nothing"])), min_size=1, max_size=10)


def check(make_loop, program, ties):
    model = Model(ties)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"!")
        loop = make_loop()
        real = Real(loop, ties, (ours, theirs))
        try:
            for body, drive in program:
                for machine in (model, real):
                    try:
                        machine.execute(body)
                    except (Own, KeyboardInterrupt):
                        machine.trace.append("raised outside")
                before = copy.deepcopy(model) if drive == "run" else None
                if drive == "run" and before.run():
                    model.run()
                    real.run()
                elif drive != "nothing":
                    for machine in (model, real):
                        machine.stop()
                        machine.run()
                assert real.trace == model.trace
                assert real.cancellations() == model.cancellations()
            assert real.errors == sum(entry[0] == "failed" for entry in model.trace)
        finally:
            loop.remove_reader(ours)
            loop.close()


@hypothesis.given(programs)
@examples(250)
def test_programs_give_the_trace_of_the_model(make_loop, program):
    check(make_loop, program, ties=False)


@pytest.mark.uvpy_only("heapq, which asyncio uses, does not keep the order of more than two equal deadlines")
@hypothesis.given(programs)
@examples(250)
def test_programs_with_equal_deadlines(make_loop, program):
    check(make_loop, program, ties=True)


@hypothesis.given(
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(["keep", "keep", "cancel", "cancel later", "again"])), max_size=40
    )
)
@examples(60)
def test_timers_are_never_early_nor_lost(make_loop, timers):
    """Timers a few tenths of a millisecond apart: each kept one runs once, by deadline, not before it."""
    loop, ran, expected, later = make_loop(), [], [], []

    def fire(handle_number, again):
        ran.append((handles[handle_number].when(), handle_number, time.monotonic()))
        if again:
            handles.append(loop.call_later(0.001, fire, len(handles), False))
        for handle in later:
            handle.cancel()

    handles = []
    base = loop.time()
    try:
        for tenths, fate in timers:
            handles.append(
                loop.call_at(base + tenths * 1e-4 + len(handles) * 1e-9, fire, len(handles), fate == "again")
            )
            if fate == "cancel":
                handles[-1].cancel()
            elif fate == "cancel later":
                later.append(handles[-1])
            else:
                expected.append(len(handles) - 1)
        loop.call_at(base + 0.009, loop.stop)
        loop.run_forever()
    finally:
        loop.close()
    for when, _, now in ran:
        assert now >= when - 2e-9, "early"
    numbers = [number for _, number, _ in ran]
    assert len(set(numbers)) == len(numbers), "twice"
    assert set(expected) <= set(numbers), "lost"
    assert not any(handles[n].cancelled() for n in expected)
    first = [entry for entry in ran if entry[1] < len(timers)]
    assert first == sorted(first, key=lambda entry: entry[0]), "out of order"


@hypothesis.given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=3))
@examples(40)
def test_no_wakeup_of_a_parked_loop_is_lost(make_loop, threads):
    """Threads that call now and then, each call awaited by its thread: none waits longer than a moment."""
    loop, waits = make_loop(), []
    left = [len(threads)]

    def done():
        left[0] -= 1
        if not left[0]:
            loop.stop()

    def work(pauses):
        for pause in pauses:
            if pause:
                time.sleep(pause * 1e-4)
            seen = threading.Event()
            start = time.monotonic()
            loop.call_soon_threadsafe(seen.set)
            seen.wait(3)
            waits.append(time.monotonic() - start)
            if waits[-1] >= 3:
                break
        loop.call_soon_threadsafe(done)

    try:
        joins = [start_thread(work, pauses) for pauses in threads]
        guard = loop.call_later(15, loop.stop)
        loop.run_forever()
        guard.cancel()
        for join in joins:
            join()
    finally:
        loop.close()
    assert max(waits) < 2, "a wake-up was lost"
    assert len(waits) == sum(map(len, threads))
    assert sys.getswitchinterval() > 0
