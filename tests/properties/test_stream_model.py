"""The stream against a model: whatever is written, in whatever pieces and rhythm, and however it ends, the peer gets
what TCP promises
and the protocol is told what asyncio promises. The same plans run on both loops.
"""

import asyncio
import contextlib
import itertools
import select
import socket
import sys

import hypothesis
from hypothesis import strategies as st

from support.drive import turns
from support.explore import examples
from support.peers import KB, MB, pattern, reset, same
from support.protocols import HalfOpen

LIMIT = 10
KEEPS_VIEWS = sys.version_info >= (3, 12)  # stock: of what was written and not sent yet it keeps no copy


class Plan:
    """One connection on which a plan is carried out."""

    def __init__(self, transport, protocol, peer):
        self.transport, self.protocol, self.peer = transport, protocol, peer
        self.sent, self.received, self.from_peer = bytearray(), bytearray(), bytearray()
        self.position = 0
        self.over = False  # nothing written from here on is promised to arrive
        self.eof = False

    def take(self, size):
        """The next `size` bytes of an endless text in which every place looks different."""
        text = pattern(512 * KB)
        start = self.position % 1021
        self.position += size
        return text[start : start + size]

    # ---- statements

    def write(self, size, kind="bytes"):
        if self.eof or self.over:
            return
        blob = self.take(size)
        self.sent += blob
        if kind == "bytearray":
            buffer = bytearray(blob)
            self.transport.write(buffer)
            if not KEEPS_VIEWS or type(self.transport).__module__ != "asyncio.selector_events":
                buffer[:] = b"?" * len(buffer)
        elif kind == "view":
            self.transport.write(memoryview(b"<" + blob + b">")[1:-1])
        else:
            self.transport.write(blob)

    def writelines(self, sizes):
        if self.eof or self.over:
            return
        pieces = [self.take(size) for size in sizes]
        self.sent += b"".join(pieces)
        self.transport.writelines(pieces)

    def size(self):
        kept = self.transport.get_write_buffer_size()
        assert 0 <= kept <= len(self.sent)

    def limits(self, high):
        self.transport.set_write_buffer_limits(high=high)

    def pause(self):
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self):
        self.transport.resume_reading()

    def peer_reads(self, count):
        while count > 0 and select.select([self.peer], [], [], 0)[0]:
            chunk = self.peer.recv(min(count, 64 * KB))
            if not chunk:
                break
            self.received += chunk
            count -= len(chunk)

    def peer_writes(self, size):
        with contextlib.suppress(BlockingIOError, OSError):
            blob = self.take(size)
            self.from_peer += blob[: self.peer.send(blob)]

    # ---- ends

    def close(self):
        self.transport.close()
        self.over = True

    def abort(self):
        self.transport.abort()
        self.over = True

    def write_eof(self):
        if not self.over:
            self.transport.write_eof()
            self.eof = True


# Sizes of all orders, so that some writes are taken whole, some in part and some not at all.
sizes = st.sampled_from(
    [0, 1, 7, 100, 1000, 9000, 16 * KB, 20_000, 50_000, 64 * KB - 1, 64 * KB, 64 * KB + 1, 150_000, 300_000]
)
statement = st.one_of(
    st.tuples(st.just("write"), sizes, st.sampled_from(["bytes", "bytes", "bytearray", "view"])),
    st.tuples(st.just("write"), st.integers(1, 50)),
    st.tuples(st.just("writelines"), st.lists(sizes, max_size=5)),
    st.tuples(st.just("size")),
    st.tuples(st.just("limits"), st.sampled_from([0, 1, 1000, 64 * KB, MB])),
    st.tuples(st.sampled_from(["pause", "resume"])),
    st.tuples(st.just("peer_reads"), st.sampled_from([1, 5000, 10**6])),
    st.tuples(st.just("peer_writes"), st.integers(1, 30_000)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("turn")),
)
plans = st.fixed_dictionaries(
    {
        "statements": st.lists(statement, min_size=4, max_size=25),
        "end": st.sampled_from(["drained", "eof", "close", "eof then close", "abort", "peer closes", "peer resets"]),
        "in a callback": st.booleans(),
        "busy": st.booleans(),
        "big buffers": st.booleans(),
    }
)


async def carry_out(plan):
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = socket.socket(), None
    try:
        if not plan["big buffers"]:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * KB)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KB)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
        listener.close()
        ours.setblocking(False)
        theirs.setblocking(False)
        running = [plan["busy"]]

        def spin():
            if running[0]:
                loop.call_soon(spin)

        for _ in range(30 if plan["busy"] else 0):
            spin()
        transport, protocol = await loop.create_connection(HalfOpen, sock=ours)
        on = Plan(transport, protocol, theirs)
        await run_statements(loop, on, plan["statements"], plan["in a callback"])
        await end(loop, on, plan["end"], plan["in a callback"])
        running[0] = False
        await turns(3)
        check(on, plan["end"])
    finally:
        running = [False]
        for sock in (listener, theirs):
            if sock is not None:
                sock.close()


async def run_statements(loop, on, statements, in_callback):
    """Groups of statements between turns, each group without the loop getting control, in the task or in a
    callback of its own.
    """
    for is_turn, group in itertools.groupby(statements, key=lambda s: s[0] == "turn"):
        group = list(group)
        if is_turn:
            await turns(len(group))
        else:
            await together(loop, in_callback, [getattr(on, name) for name, *_ in group], [args for _, *args in group])


async def together(loop, in_callback, methods, arguments):
    def work():
        for method, args in zip(methods, arguments, strict=True):
            method(*args)

    if not in_callback:
        work()
        return
    done = loop.create_future()

    def call():
        try:
            work()
            done.set_result(None)
        except BaseException as exc:
            done.set_exception(exc)

    loop.call_soon(call)
    await done


async def end(loop, on, how, in_callback):
    on.resume()
    # A close with unread data is a reset for the peer, which may cost it what was sent.
    await on.protocol.got(len(on.from_peer))
    if how == "close":
        await together(loop, in_callback, [on.write, on.write, on.close], [(3,), (4,), ()])
        await read_to_the_end(loop, on)
    elif how == "drained":
        await together(loop, in_callback, [on.write, on.write], [(300_000,), (5,)])
        await read_to_the_end(loop, on, len(on.sent))
        await on.protocol.until(lambda: on.protocol.events.count("pause") == on.protocol.events.count("resume"))
        assert on.transport.get_write_buffer_size() == 0
        on.close()
    elif how in ("eof", "eof then close"):
        await together(loop, in_callback, [on.write, on.write_eof], [(7,), ()])
        if how == "eof then close":
            on.close()
        await read_to_the_end(loop, on)
        on.peer.close()
        on.close()
    elif how == "abort":
        await together(loop, in_callback, [on.write, on.abort], [(7,), ()])
        await on.protocol.lost()
        with contextlib.suppress(ConnectionResetError):
            await read_to_the_end(loop, on)
    elif how == "peer closes":
        on.peer.close()
        for _ in range(50):
            if on.transport.is_closing():
                break
            on.write(1)
            await asyncio.sleep(0)
        on.close()
    else:
        reset(on.peer)
    await on.protocol.lost()


async def read_to_the_end(loop, on, count=None):
    """The peer reads all there is, up to the end of file or so many bytes in all, with the loop running."""
    async with asyncio.timeout(LIMIT):
        while count is None or len(on.received) < count:
            try:
                chunk = on.peer.recv(256 * KB)
            except BlockingIOError:
                await asyncio.sleep(0)
                continue
            if not chunk:
                return
            on.received += chunk


def check(on, how):
    events = on.protocol.events
    assert events[0] == "made"
    assert events.count("made") == events.count("lost") == 1
    assert events[-1] == "lost"
    assert events.count("eof") <= 1
    flow = [e for e in events if e in ("pause", "resume")]
    assert flow == ["pause", "resume"] * (len(flow) // 2) + ["pause"] * (len(flow) % 2)
    assert on.transport.is_closing()
    assert on.transport.get_write_buffer_size() == 0
    if how in ("drained", "close", "eof", "eof then close"):
        same(bytes(on.received), bytes(on.sent))
        assert on.protocol.exc is None
        assert len(flow) % 2 == 0 or how != "eof", "everything was sent, and resume_writing() never came"
    else:
        same(bytes(on.received), bytes(on.sent[: len(on.received)]))
    if how == "abort":
        assert on.protocol.exc is None
    got = bytes(on.protocol.data)
    same(got, bytes(on.from_peer[: len(got)]))
    if how == "eof":
        assert len(got) == len(on.from_peer), "what the peer sent before its end did not come"


@hypothesis.given(plans)
@examples(200)
def test_plans_come_to_the_end_that_tcp_promises(make_loop, plan):
    loop, contexts = make_loop(), []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    try:
        loop.run_until_complete(carry_out(plan))
        assert contexts == []
    finally:
        loop.close()


@hypothesis.given(
    st.lists(st.lists(st.integers(0, 70_000), max_size=8), min_size=1, max_size=6), st.booleans(), st.booleans()
)
@examples(40)
def test_connections_beside_each_other(make_loop, texts, busy, half_close):
    """Several connections written to in the same turns: each peer gets its own text, whole, and nothing else."""

    async def main():
        loop = asyncio.get_running_loop()
        running = [busy]

        def spin():
            if running[0]:
                loop.call_soon(spin)

        for _ in range(20 if busy else 0):
            spin()
        plans = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in texts:
                ours = socket.create_connection(listener.getsockname())
                ours.setblocking(False)
                theirs, _ = listener.accept()
                theirs.setblocking(False)
                plans.append(Plan(*await loop.create_connection(HalfOpen, sock=ours), theirs))
        for row in itertools.zip_longest(*texts):
            for plan, size in zip(plans, row, strict=True):
                if size is not None:
                    plan.write(size)
            if len(row) % 2:
                await turns(1)
        for plan in plans:
            plan.write_eof() if half_close else plan.close()
        for plan in plans:
            await read_to_the_end(loop, plan)
            plan.peer.close()
            plan.close()
            await plan.protocol.lost()
            same(bytes(plan.received), bytes(plan.sent))
            assert plan.protocol.events.count("lost") == 1
        running[0] = False

    loop = make_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
