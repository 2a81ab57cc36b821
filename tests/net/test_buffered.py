"""BufferedProtocol: data straight into the protocol's own buffer."""

import asyncio
import gc
import sys

import pytest

from support.drive import eventually, turns
from support.peers import KB, MB, pattern, same
from support.protocols import SIDES, Buffered, Recorder, wire


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
async def test_data_comes_in_the_protocols_buffer(loop, sockets, side, size):
    blob = pattern(min(200_000, size * 2000))
    async with wire(sockets, lambda: Buffered(size), side) as (_, protocol, peer):
        sending = peer.start(lambda: (peer.sock.sendall(blob), peer.close()))
        assert await protocol.lost() is None
        await asyncio.wrap_future(sending)
        same(bytes(protocol.data), blob)
        assert protocol.order() == ["made", "data", "eof", "lost"]
        assert protocol.hints
        assert all(hint == -1 or hint > 0 for hint in protocol.hints)


@pytest.mark.parametrize(
    "kind_of_buffer", [bytearray, lambda n: memoryview(bytearray(n)), lambda n: memoryview(bytearray(n + 4))[2:-2]]
)
async def test_buffers_of_all_kinds(loop, sockets, kind_of_buffer):
    class Own(Buffered):
        def __init__(self):
            super().__init__()
            self.room = kind_of_buffer(10)

        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.room[:nbytes] = b"?" * nbytes

    async with wire(sockets, Own) as (_, protocol, peer):
        peer.sock.send(pattern(55))
        assert await protocol.got(55) == pattern(55)


async def test_a_fresh_buffer_each_time(loop, sockets):
    """A buffer handed out is filled, told and forgotten: the protocol may give another one next."""
    used = []

    class Fresh(Buffered):
        def get_buffer(self, sizehint):
            used.append(bytearray(5))
            return used[-1]

        def buffer_updated(self, nbytes):
            self.data += used[-1][:nbytes]
            self._note("data")

    async with wire(sockets, Fresh) as (_, protocol, peer):
        peer.sock.send(b"0123456789ab")
        assert await protocol.got(12) == b"0123456789ab"
        for buffer in used:
            buffer.clear()  # not locked any more
        assert len(used) >= 3


async def test_the_count_is_what_came(loop, sockets):
    counts = []

    class Counts(Buffered):
        def buffer_updated(self, nbytes):
            assert type(nbytes) is int
            counts.append(nbytes)
            super().buffer_updated(nbytes)

    async with wire(sockets, lambda: Counts(4)) as (_, protocol, peer):
        peer.sock.send(b"123456")
        await protocol.got(6)
        assert counts == [4, 2]


@pytest.mark.parametrize(
    ("wrong", "kind_of_error"),
    [
        (bytearray(0), RuntimeError),
        (None, TypeError),
        (b"read only", (TypeError, BufferError, ValueError)),
        (5, TypeError),
        ("x", TypeError),
    ],
    ids=["empty", "None", "bytes", "int", "str"],
)
async def test_a_wrong_buffer_is_fatal(loop, sockets, errors, wrong, kind_of_error):
    class Bad(Buffered):
        def get_buffer(self, sizehint):
            return wrong

    async with wire(sockets, Bad) as (transport, protocol, peer):
        peer.sock.send(b"x")
        assert isinstance(await protocol.lost(), kind_of_error)
        (context,) = errors.take()
        assert context["exception"] is protocol.exc
        assert context["transport"] is transport


@pytest.mark.parametrize("where", ["get_buffer", "buffer_updated", "eof_received"])
async def test_an_exception_is_fatal_and_names_the_method(loop, sockets, errors, where):
    def bad(self, *args):
        raise ZeroDivisionError("boom")

    async with wire(sockets, type("Bad", (Buffered,), {where: bad})) as (_, protocol, peer):
        peer.sock.send(b"x")
        peer.half_close()
        assert isinstance(await protocol.lost(), ZeroDivisionError)
        assert [c["message"] for c in errors.take()] == [f"Fatal error: protocol.{where}() call failed."]


@pytest.mark.parametrize("act", ["pause_reading", "close", "abort"])
@pytest.mark.parametrize("where", ["get_buffer", "buffer_updated"])
async def test_the_transport_may_be_stopped_inside(loop, sockets, where, act):
    acted = []

    class Stops(Buffered):
        def get_buffer(self, sizehint):
            if where == "get_buffer":
                self.act()
            return super().get_buffer(sizehint)

        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            if where == "buffer_updated":
                self.act()

        def act(self):
            acted.append(1)
            getattr(self.transport, act)()
            gc.collect()

    async with wire(sockets, lambda: Stops(3)) as (transport, protocol, peer):
        peer.sock.send(b"123456789")
        await eventually(lambda: acted)
        if act == "pause_reading":
            await asyncio.sleep(0.005)
            assert len(acted) == 1
            transport.abort()
        assert await protocol.lost() is None
        assert protocol.events.count("data") <= 1
        assert protocol.events.count("lost") == 1


async def test_changing_kinds_inside_a_callback(loop, sockets):
    """From a buffered protocol to a plain one and back, each inside the other's callback."""

    class Plain(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.set_protocol(self.other)

    class Switch(Buffered):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.transport.set_protocol(self.other)

    async with wire(sockets, lambda: Switch(2)) as (transport, buffered, peer):
        plain = Plain()
        plain.other, buffered.other, plain.transport = buffered, plain, transport
        got = []
        for n in range(1, 5):
            peer.sock.send(b"ab")
            await eventually(lambda n=n: len(buffered.data) + len(plain.data) == 2 * n)
            got.append((len(buffered.data), len(plain.data)))
        assert got == [(2, 0), (2, 2), (4, 2), (4, 4)]
        await turns(2)


async def test_the_buffer_is_not_kept(loop, sockets):
    async with wire(sockets, Buffered) as (_, protocol, peer):
        room = protocol.room = memoryview(bytearray(10))
        peer.sock.send(b"12345")
        await protocol.got(5)
        before = sys.getrefcount(room)
        for i in range(2, 10):
            peer.sock.send(b"12345")
            await protocol.got(5 * i)
        await turns(2)
        assert sys.getrefcount(room) == before


async def test_a_flood_into_a_small_buffer(loop, sockets):
    """Megabytes through a few kilobytes, with the loop's other work going on."""
    async with wire(sockets, lambda: Buffered(16 * KB)) as (_, protocol, peer):
        sending = peer.start(peer.sock.sendall, pattern(2 * MB))
        ticks = 0
        while len(protocol.data) < 2 * MB:
            await asyncio.sleep(0)
            ticks += 1
        await asyncio.wrap_future(sending)
        same(bytes(protocol.data), pattern(2 * MB))
        assert ticks > 10
