"""The read path: what data_received() gets, order, ends, pausing, who closes in which callback."""

import asyncio
import contextvars
import gc
import socket
import sys
import threading

import pytest

from support.drive import cpu_below, eventually, run, turn, turns
from support.peers import KB, MB, pattern, same
from support.protocols import SIDES, HalfOpen, Recorder, drop, wire


@pytest.mark.parametrize("side", SIDES)
async def test_bytes_come_in_order_and_whole(loop, sockets, side):
    kinds = set()

    class Typed(Recorder):
        def data_received(self, data):
            kinds.add(type(data))
            assert data
            super().data_received(data)

    blob = pattern(2 * MB + 12345)
    async with wire(sockets, Typed, side) as (_, protocol, peer):
        sending = peer.start(peer.sock.sendall, blob)
        same(await protocol.got(len(blob)), blob)
        await asyncio.wrap_future(sending)
        peer.close()
        assert await protocol.lost() is None
        assert kinds == {bytes}
        assert protocol.order() == ["made", "data", "eof", "lost"]


async def test_small_pieces_come_one_by_one(loop, sockets):
    async with wire(sockets) as (_, protocol, peer):
        for i in range(200):
            peer.sock.send(b"%d," % i)
            await protocol.has("data", i + 1)
        assert bytes(protocol.data) == b"".join(b"%d," % i for i in range(200))
        assert protocol.events.count("data") == 200


async def test_each_received_object_is_its_own(loop, sockets):
    """What data_received() got earlier does not change when more comes."""
    kept = []

    class Keeps(Recorder):
        def data_received(self, data):
            kept.append(data)
            super().data_received(data)

    async with wire(sockets, Keeps) as (_, protocol, peer):
        for i in range(50):
            peer.sock.send(bytes([i]) * 1000)
            await protocol.got(1000 * (i + 1))
    assert b"".join(kept) == b"".join(bytes([i]) * 1000 for i in range(50))


async def test_a_big_chunk_is_at_most_what_asyncio_reads(loop, sockets):
    """One data_received() gets no more than asyncio's 256 KiB."""
    sizes = []

    class Sizes(Recorder):
        def data_received(self, data):
            sizes.append(len(data))
            super().data_received(data)

    async with wire(sockets, Sizes) as (transport, protocol, peer):
        transport.pause_reading()
        sending = peer.start(peer.sock.sendall, bytes(4 * MB))
        await asyncio.sleep(0.01)
        transport.resume_reading()
        await protocol.got(4 * MB)
        await asyncio.wrap_future(sending)
    assert max(sizes) <= 256 * KB


@pytest.mark.parametrize("side", SIDES)
async def test_data_before_the_transport_is_read_after_connection_made(loop, sockets, side):
    """What came before the connection was taken over is delivered, made first."""
    ours, theirs = sockets.pair(tcp=side != "unix")
    theirs.send(b"early")
    theirs.shutdown(socket.SHUT_WR)
    connect = {
        "client": loop.create_connection,
        "accepted": loop.connect_accepted_socket,
        "unix": loop.create_unix_connection,
    }
    _, protocol = await connect[side](Recorder, sock=ours)
    assert protocol.events[0] == "made"
    assert await protocol.lost() is None
    assert protocol.order() == ["made", "data", "eof", "lost"]
    assert bytes(protocol.data) == b"early"


async def test_connection_made_comes_before_create_connection_returns(loop, sockets):
    """made, then reading begins, then the awaiting coroutine goes on: no data is seen before it could be expected."""
    order = []

    class Notes(Recorder):
        def connection_made(self, transport):
            order.append("made")
            assert asyncio.get_running_loop() is loop
            super().connection_made(transport)

        def data_received(self, data):
            order.append("data")
            super().data_received(data)

    ours, theirs = sockets.pair(tcp=True)
    theirs.send(b"x")
    transport, protocol = await loop.create_connection(Notes, sock=ours)
    order.append("returned")
    await protocol.got(1)
    assert order[0] == "made"
    assert sorted(order) == ["data", "made", "returned"]
    await drop(transport)


# ---- ends


@pytest.mark.parametrize("side", SIDES)
async def test_end_of_file_closes(loop, sockets, side):
    """The peer's end of file ends a protocol whose eof_received() says nothing; the transport closes our side too."""
    async with wire(sockets, Recorder, side) as (transport, protocol, peer):
        peer.half_close()
        assert await protocol.lost() is None
        assert transport.is_closing()
        assert protocol.order() == ["made", "eof", "lost"]
        assert await peer.recv_all() == b""


@pytest.mark.parametrize("answer", [False, 0, "", None, True, 1, "x"], ids=repr)
async def test_the_answer_of_eof_received(loop, sockets, answer):
    """A true answer keeps the transport open for writing, any false one closes it."""

    class Answers(Recorder):
        def eof_received(self):
            super().eof_received()
            return answer

    async with wire(sockets, Answers) as (transport, protocol, peer):
        peer.half_close()
        await protocol.has("eof")
        await turns(3)
        assert transport.is_closing() is not bool(answer)
        if answer:
            transport.write(b"still writing")
            assert await peer.recv(13) == b"still writing"
            transport.close()
        assert await protocol.lost() is None
        assert protocol.events.count("eof") == 1


async def test_a_half_open_transport_does_not_spin(loop, sockets):
    async with wire(sockets, HalfOpen) as (transport, protocol, peer):
        peer.half_close()
        await protocol.has("eof")
        with cpu_below(0.1):
            await asyncio.sleep(0.3)
        assert protocol.events == ["made", "eof"]
        transport.write(b"x")
        assert await peer.recv(1) == b"x"


async def test_a_half_open_transport_after_the_peer_is_gone(loop, sockets):
    """Writing to a peer that went away altogether ends in connection_lost() with the error."""
    async with wire(sockets, HalfOpen) as (transport, protocol, peer):
        peer.close()
        await protocol.has("eof")
        for _ in range(100):
            transport.write(b"x" * 1000)
            if transport.is_closing():
                break
            await asyncio.sleep(0.001)
        assert isinstance(await protocol.lost(), (ConnectionResetError, BrokenPipeError))


@pytest.mark.parametrize("after", ["nothing", "data", "pause"])
async def test_a_reset_is_connection_lost_with_the_error(loop, sockets, after):
    async with wire(sockets) as (transport, protocol, peer):
        if after == "data":
            peer.sock.send(b"x")
            await protocol.got(1)
        if after == "pause":
            transport.pause_reading()
            await turns(2)
            peer.reset()
            await asyncio.sleep(0.01)
            assert protocol.events == ["made"]
            transport.resume_reading()
        else:
            peer.reset()
        assert isinstance(await protocol.lost(), ConnectionResetError)
        assert "eof" not in protocol.events
        assert protocol.events.count("lost") == 1
        assert transport.is_closing()


async def test_data_that_came_before_the_end_is_never_dropped(loop, sockets):
    """Data and the end of file in the kernel at once: all data first, then eof, then lost."""
    for size in (1, 1000, 70_000):
        async with wire(sockets) as (_, protocol, peer):
            await peer.send(bytes(size))
            peer.close()
            await protocol.lost()
            assert len(protocol.data) == size
            assert protocol.order() == ["made", "data", "eof", "lost"]


# ---- pausing


async def test_pausing_holds_everything_back(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        assert transport.is_reading()
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        peer.sock.send(b"one")
        await asyncio.sleep(0.02)
        peer.sock.send(b"two")
        peer.half_close()
        await asyncio.sleep(0.02)
        assert protocol.events == ["made"]
        transport.resume_reading()
        transport.resume_reading()
        assert transport.is_reading()
        assert await protocol.lost() is None
        assert bytes(protocol.data) == b"onetwo"
        assert not transport.is_reading()


async def test_pausing_in_data_received_takes_effect_at_once(loop, sockets):
    """After pause_reading() in data_received() no more data comes, however much there is."""

    class Once(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async with wire(sockets, Once) as (transport, protocol, peer):
        sending = peer.start(peer.sock.sendall, pattern(MB))
        for n in range(1, 4):
            await protocol.has("data", n)
            await asyncio.sleep(0.005)
            assert protocol.events.count("data") == n
            transport.resume_reading()
        protocol.__class__ = Recorder
        transport.resume_reading()
        same(await protocol.got(MB), pattern(MB))
        await asyncio.wrap_future(sending)


@pytest.mark.asyncio_gap("reads although it was paused before it began", since=(3, 11), until=(3, 11, 7))
async def test_pausing_in_connection_made(loop, sockets):
    class Shy(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    ours, theirs = sockets.pair(tcp=True)
    theirs.send(b"early")
    transport, protocol = await loop.create_connection(Shy, sock=ours)
    await asyncio.sleep(0.01)
    assert protocol.events == ["made"]
    assert not transport.is_reading()
    transport.resume_reading()
    assert await protocol.got(5) == b"early"
    await drop(transport)


async def test_pause_and_resume_in_one_turn_change_nothing(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        for i in range(20):
            transport.pause_reading()
            transport.resume_reading()
            if i % 2:
                transport.pause_reading()
                transport.resume_reading()
            peer.sock.send(b"x")
            await protocol.got(i + 1)


async def test_back_pressure_reaches_the_peer(loop, sockets):
    """With reading paused a peer can send what the kernel buffers and no more."""
    async with wire(sockets) as (transport, protocol, peer):
        transport.pause_reading()
        peer.sock.setblocking(False)
        sent = 0
        for _ in range(20):
            try:
                while sent < 64 * MB:
                    sent += peer.sock.send(bytes(64 * KB))
            except BlockingIOError:
                pass
            await asyncio.sleep(0.001)
        assert sent < 64 * MB
        transport.resume_reading()
        await protocol.got(sent)
        assert len(protocol.data) == sent


# ---- closing inside callbacks


@pytest.mark.parametrize("act", ["close", "abort"])
@pytest.mark.parametrize("where", ["connection_made", "data_received", "eof_received", "connection_lost"])
async def test_closing_inside_any_callback(loop, sockets, where, act):
    """connection_lost() comes once, never inside the call, and no data after it."""

    def method(self, *args):
        result = getattr(Recorder, where)(self, *args)
        before = self.events.count("lost")
        getattr(self.transport, act)()
        gc.collect()
        assert self.events.count("lost") == before
        assert self.transport.is_closing()
        return result

    ours, theirs = sockets.pair(tcp=True)
    theirs.send(b"some data")
    theirs.shutdown(socket.SHUT_WR)
    _, protocol = await loop.create_connection(type("Closes", (Recorder,), {where: method}), sock=ours)
    assert await protocol.lost() is None
    await turns(5)
    assert protocol.events[0] == "made"
    assert protocol.events.count("lost") == 1
    assert protocol.events[-1] == "lost"
    if where == "connection_made":
        assert protocol.events == ["made", "lost"]


async def test_no_data_after_close(loop, sockets):
    """Data that waits in the kernel when close() is called is not delivered."""
    async with wire(sockets) as (transport, protocol, peer):
        transport.pause_reading()
        peer.sock.send(b"late")
        await asyncio.sleep(0.005)
        transport.close()
        await protocol.lost()
        assert protocol.events == ["made", "lost"]


async def test_every_connection_of_a_turn_is_read(loop, sockets):
    """Fifty connections that become readable in one turn each get their data, though each closes another one."""
    wires = []
    for _ in range(50):
        ours, theirs = sockets.pair(tcp=True)
        wires.append((*await loop.create_connection(Recorder, sock=ours), theirs))
    for i, (_, _, theirs) in enumerate(wires):
        theirs.send(b"%d" % i)
    for i, (_, protocol, _) in enumerate(wires):
        assert await protocol.got(len(str(i))) == b"%d" % i
    for transport, _, _ in wires:
        transport.close()
    for _, protocol, _ in wires:
        assert await protocol.lost() is None


async def test_a_protocol_may_close_the_others_of_its_turn(loop, sockets):
    """The first of many ready connections aborts all: none of the others is given data any more, all are lost once."""
    made = []

    class Killer(Recorder):
        def data_received(self, data):
            super().data_received(data)
            for other in made:
                other.transport.abort()

    others = []
    for _ in range(20):
        ours, theirs = sockets.pair(tcp=True)
        made.append((await loop.create_connection(Killer, sock=ours))[1])
        others.append(theirs)
    for theirs in others:
        theirs.send(b"x")
    for protocol in made:
        await protocol.lost()
    await turns(5)
    assert sum("data" in p.events for p in made) == 1
    assert all(p.events.count("lost") == 1 for p in made)


# ---- errors of protocols


@pytest.mark.parametrize("where", ["data_received", "eof_received"])
@pytest.mark.parametrize(
    "kind_of_error", [ZeroDivisionError, OSError, ConnectionResetError, asyncio.CancelledError, GeneratorExit]
)
async def test_an_exception_of_the_protocol_is_fatal(loop, sockets, errors, where, kind_of_error):
    """connection_lost() gets that very exception; unless it is an OSError it is reported, once, naming the method."""

    def bad(self, *args):
        getattr(Recorder, where)(self, *args)
        raise kind_of_error("boom")

    async with wire(sockets, type("Bad", (Recorder,), {where: bad})) as (transport, protocol, peer):
        peer.sock.send(b"x") if where == "data_received" else peer.half_close()
        exc = await protocol.lost()
        assert type(exc) is kind_of_error
        assert protocol.events.count("lost") == 1
        contexts = errors.take()
        if issubclass(kind_of_error, OSError):
            assert contexts == []
            return
        (context,) = contexts
        assert context["exception"] is exc
        assert context["message"] == f"Fatal error: protocol.{where}() call failed."
        assert context["transport"] is transport
        assert context["protocol"] is protocol


@pytest.mark.parametrize("where", ["connection_made", "data_received", "eof_received", "connection_lost"])
@pytest.mark.parametrize("kind_of_exit", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_a_protocol_leaves_the_run(loop, sockets, where, kind_of_exit):
    """SystemExit and KeyboardInterrupt come out of the run unreported, and everything can be ended in the next."""

    raised = []

    def leave(self, *args):
        result = getattr(Recorder, where)(self, *args)
        if not raised:
            raised.append(1)
            raise kind_of_exit(7)
        return result

    made = []

    def factory():
        made.append(type("Leaves", (Recorder,), {where: leave})())
        return made[-1]

    ours, theirs = sockets.pair(tcp=True)
    theirs.send(b"x")
    theirs.shutdown(socket.SHUT_WR)
    task = loop.create_task(loop.create_connection(factory, sock=ours))
    guard = loop.call_later(10, loop.stop)
    with pytest.raises(kind_of_exit):
        loop.run_forever()
    guard.cancel()
    transport, protocol = loop.run_until_complete(task)
    if not transport.is_closing():
        transport.abort()
    run(loop, protocol.lost())
    turn(loop, 3)
    assert protocol.events.count("lost") == 1


async def test_an_exception_in_connection_made_is_reported_only(loop, sockets, errors):
    """The connection lives on, as in asyncio."""

    class Bad(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            raise ZeroDivisionError

    async with wire(sockets, Bad) as (_, protocol, peer):
        peer.sock.send(b"x")
        assert await protocol.got(1) == b"x"
        (context,) = errors.take()
        assert isinstance(context["exception"], ZeroDivisionError)
        assert context["message"].startswith("Exception in callback ")


async def test_an_exception_in_connection_lost_is_reported_and_the_socket_closed(loop, sockets, errors):
    class Bad(Recorder):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            raise ZeroDivisionError

    async with wire(sockets, Bad) as (transport, protocol, peer):
        transport.close()
        await protocol.lost()
        assert await peer.recv_all() == b""
        await turns(2)
        (context,) = errors.take()
        assert isinstance(context["exception"], ZeroDivisionError)


async def test_errors_of_one_connection_do_not_touch_another(loop, sockets, errors):
    class Bad(Recorder):
        def data_received(self, data):
            raise ZeroDivisionError

    async with wire(sockets, Bad) as (_, bad, bad_peer), wire(sockets) as (_, good, good_peer):
        bad_peer.sock.send(b"x")
        good_peer.sock.send(b"y")
        await bad.lost()
        assert await good.got(1) == b"y"
        assert len(errors.take()) == 1


# ---- contexts, floods, references


@pytest.mark.parametrize("side", SIDES)
async def test_callbacks_have_the_context_of_the_connection(loop, sockets, side):
    var, seen = contextvars.ContextVar("var", default="none"), []

    class Asks(Recorder):
        def connection_made(self, transport):
            seen.append(var.get())
            super().connection_made(transport)

        def data_received(self, data):
            seen.append(var.get())
            super().data_received(data)

        def eof_received(self):
            seen.append(var.get())
            super().eof_received()

        def connection_lost(self, exc):
            seen.append(var.get())
            super().connection_lost(exc)

    var.set("making")
    async with wire(sockets, Asks, side) as (_, protocol, peer):
        var.set("later")
        peer.sock.send(b"x")
        await protocol.got(1)
        peer.close()
        await protocol.lost()
    assert seen == ["making"] * 4


async def test_a_flood_leaves_the_loop_its_turns(loop, sockets):
    """A peer that sends without end starves neither timers nor other connections."""
    async with wire(sockets) as (transport, flooded, flooder), wire(sockets) as (_, quiet, other):
        stop = threading.Event()

        def flood():
            try:
                while not stop.is_set():
                    flooder.sock.send(bytes(256 * KB))
            except OSError:
                pass

        flooding = flooder.start(flood)
        start = loop.time()
        for i in range(20):
            await asyncio.sleep(0.002)
            other.sock.send(b"x")
            await quiet.got(i + 1)
            flooded.data.clear()
        assert loop.time() - start < 5
        stop.set()
        transport.abort()
        await asyncio.wrap_future(flooding)
        assert flooded.events.count("data") > 10


async def test_received_data_is_let_go(loop, sockets):
    """The transport keeps no reference to what it has delivered."""
    last = []

    class Keeps(Recorder):
        def data_received(self, data):
            last[:] = [data]
            super().data_received(data)

    async with wire(sockets, Keeps) as (_, protocol, peer):
        for i in range(10):
            peer.sock.send(b"12345")
            await protocol.got(5 * (i + 1))
        await turns(2)
        count = sys.getrefcount(last[0])
        assert count == 2


async def test_transport_and_protocol_are_garbage_after_the_end(loop, sockets):
    import weakref

    async with wire(sockets) as (transport, protocol, peer):
        alive = weakref.ref(transport), weakref.ref(protocol)
        peer.close()
        await protocol.lost()
        await turns(3)
    del transport, protocol, peer
    await eventually(lambda: gc.collect() >= 0 and [ref() for ref in alive] == [None, None], 2)


def test_data_between_two_runs_waits(loop, sockets):
    ours, theirs = sockets.pair(tcp=True)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=ours))
    theirs.send(b"one")
    run(loop, protocol.got(3))
    theirs.send(b"two")
    assert bytes(protocol.data) == b"one"
    run(loop, protocol.got(6))
    transport.close()
    run(loop, protocol.lost())
