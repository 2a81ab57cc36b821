"""Pipe transports beside asyncio's: the same plan, played on both loops turn by turn, looks the same after every step.

Left out is what asyncio gets wrong: ending a write pipe twice, and from within connection_made().
"""

import asyncio
import contextlib
import os

import hypothesis
import pytest
from hypothesis import strategies as st

from support import leaks
from support.drive import turn
from support.explore import examples
from support.pipes import pair, pipe, text
from support.protocols import Recorder

uvpy = pytest.importorskip("uvpy")

SIZES = st.sampled_from([0, 1, 100, 5000, 30_000, 200_000])
STEPS = st.one_of(
    st.just(("turn",)),
    st.just(("turn",)),
    st.tuples(st.just("put"), st.sampled_from([1, 10, 3000])),
    st.tuples(st.just("write"), SIZES, st.sampled_from([bytes, bytearray, memoryview])),
    st.tuples(st.just("drain"), st.sampled_from([10, 4096, 100_000])),
    st.tuples(st.just("limits"), st.sampled_from([(0,), (1000, 10), (None, 500), ()])),
    st.sampled_from([("pause",), ("resume",), ("soon",)]),
    st.sampled_from([("turn",), ("close reader",), ("close writer",), ("abort",), ("writer gone",), ("reader gone",)]),
)
HABITS = st.dictionaries(
    st.sampled_from(["data", "eof", "pause", "resume", "lost"]),
    st.sampled_from(["raise", "pause", "write"]),
    max_size=1,
)


class Habitual(Recorder):
    """Does something in one of its methods."""

    def __init__(self, habits):
        super().__init__()
        self.habits = habits

    def _note(self, event):
        super()._note(event)
        habit = self.habits.get(event)
        if habit == "raise":
            raise ValueError("on purpose")
        if habit == "write" and isinstance(self.transport, asyncio.WriteTransport):
            self.transport.write(bytes(70_000))
        if habit == "pause" and not isinstance(self.transport, asyncio.WriteTransport):
            self.transport.pause_reading()


class Play:
    def __init__(self, loop, sockets, ends, habits):
        self.loop = loop
        self.errors, self.taken = [], 0
        loop.set_exception_handler(lambda loop, context: self.errors.append(type(context["exception"]).__name__))
        make = pipe if ends == "pipe" else pair
        r, self.feeder = make(sockets)
        self.sink, w = make(sockets)
        for end in (self.feeder, self.sink):
            os.set_blocking(end.fileno(), False)
        self.files = (r, w)
        self.reader, self.writer = Habitual(habits), Habitual(habits)
        self.r = loop._make_read_pipe_transport(r, self.reader)
        self.w = loop._make_write_pipe_transport(w, self.writer)

    def do(self, step):
        name, *args = step
        if name == "turn":
            turn(self.loop)
        elif name == "soon":
            self.loop.call_soon(self.reader.events.append, "soon")
        elif name == "put":
            with contextlib.suppress(OSError, ValueError):
                os.write(self.feeder.fileno(), b"p" * args[0])
        elif name == "drain":
            with contextlib.suppress(OSError, ValueError):
                self.taken += len(os.read(self.sink.fileno(), args[0]))
        elif name == "write":
            self.w.write(args[1](bytes(args[0])))
        elif name == "limits":
            if self.w._loop is not None:  # stock fails then
                self.w.set_write_buffer_limits(*args[0])
        elif name in ("pause", "resume"):
            getattr(self.r, f"{name}_reading")()
        elif name == "close reader":
            self.r.close()
        elif name == "writer gone":
            self.feeder.close()
        elif name == "reader gone":
            self.sink.close()
        elif not self.w.is_closing() and "made" in self.writer.events:
            getattr(self.w, name.removesuffix(" writer"))()

    def seen(self):
        return {
            "events": (list(self.reader.events), list(self.writer.events)),
            "data": len(self.reader.data),
            "exceptions": (repr(self.reader.exc), repr(self.writer.exc)),
            "texts": (text(self.r), text(self.w)),
            "waiting": (self.w.get_write_buffer_size(), bytes(self.w._buffer)),
            "states": (self.r.is_reading(), self.r.is_closing(), self.w.is_closing(), self.w._conn_lost),
            "errors": list(self.errors),
            "taken": self.taken,
        }

    def end(self):
        turn(self.loop, 2)
        self.r.close()
        if not self.w.is_closing():
            self.w.abort()
        self.sink.close()
        turn(self.loop, 4)
        assert [f.fileno() if hasattr(f, "detach") and not hasattr(f, "closes") else f.closes for f in self.files] in (
            [-1, -1],
            [["open"], ["open"]],
        )


@examples(150)
@hypothesis.given(st.lists(STEPS, min_size=10, max_size=45), st.sampled_from(["pipe", "socket"]), HABITS)
def test_the_same_plan_looks_the_same_on_both_loops(sockets, log, plan, ends, habits):
    plays = []
    with contextlib.ExitStack() as stack:
        for make in (asyncio.SelectorEventLoop, uvpy.new_event_loop):
            loop = make()
            stack.callback(leaks.end_loop, loop)
            plays.append(Play(loop, sockets, ends, habits))
        for number, step in enumerate(plan):
            for play in plays:
                play.do(step)
            stock, ours = (play.seen() for play in plays)
            assert stock == ours, f"after step {number} of {plan}"
        for play in plays:
            play.end()
    log.take()  # of writes that go on after the end
