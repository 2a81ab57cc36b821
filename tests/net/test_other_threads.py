"""Transports used from the wrong thread: not allowed, often done, and to take effect as in asyncio."""

import asyncio
import concurrent.futures
import contextlib
import socket
import threading

import pytest

from support.drive import LIMIT, eventually, run, start_thread, turns
from support.peers import MB, pattern, same
from support.protocols import HalfOpen, Recorder, keeping, serve, stuff, wire


async def from_a_thread(loop, fn, *args):
    """Call fn(*args) in a thread while the loop is parked, then wake the loop as any program does sooner or later."""

    def work():
        parked.result(LIMIT)
        try:
            return fn(*args)
        finally:
            loop.call_soon_threadsafe(woken.set)

    woken = asyncio.Event()
    parked = concurrent.futures.Future()
    join = start_thread(work)
    loop.call_later(0.003, parked.set_result, None)
    await woken.wait()
    return join()


@pytest.mark.parametrize("size", [1, 1000, 300_000])
async def test_write(loop, sockets, size):
    """It is sent without waiting for the loop, in the order of the calls."""
    async with wire(sockets) as (transport, _, peer):
        coming = peer.start(peer._recv, 3 * size)
        blob = pattern(size)
        await from_a_thread(loop, transport.write, blob)
        transport.write(blob)
        await from_a_thread(loop, transport.writelines, [blob[: size // 2], blob[size // 2 :]])
        same(await asyncio.wrap_future(coming), blob * 3)


async def test_a_small_write_does_not_wait_for_the_loop(loop, sockets):
    async with wire(sockets) as (transport, _, peer):

        def write():
            transport.write(b"now")
            return peer.now(3, 2)

        for _ in range(5):
            assert await from_a_thread(loop, write) == b"now"


async def test_a_write_that_the_kernel_does_not_take(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        await from_a_thread(loop, transport.write, pattern(12 * MB))
        assert "pause" in protocol.events
        same(await peer.recv(12 * MB), pattern(12 * MB))
        await protocol.has("resume")


async def test_write_eof(loop, sockets):
    async with wire(sockets, HalfOpen) as (transport, _, peer):
        transport.write(b"last")
        await from_a_thread(loop, transport.write_eof)
        assert await peer.recv_all() == b"last"


@pytest.mark.parametrize("act", ["close", "abort"])
@pytest.mark.parametrize("kept", [False, True])
async def test_closing(loop, sockets, act, kept):
    async with wire(sockets) as (transport, protocol, peer):
        total = stuff(transport) if kept else 0
        await from_a_thread(loop, getattr(transport, act))
        assert transport.is_closing()
        coming = peer.start(peer._recv, None)
        assert await protocol.lost() is None
        assert protocol.events.count("lost") == 1
        if act == "close":
            assert len(await asyncio.wrap_future(coming)) == total
        else:
            with contextlib.suppress(ConnectionResetError):
                await asyncio.wrap_future(coming)


async def test_pausing_and_resuming(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):
        await from_a_thread(loop, transport.pause_reading)
        assert not transport.is_reading()
        peer.sock.send(b"held")
        await asyncio.sleep(0.005)
        assert not protocol.data
        await from_a_thread(loop, transport.resume_reading)
        assert await protocol.got(4) == b"held"


async def test_asking(loop, sockets):
    async with wire(sockets) as (transport, protocol, peer):

        def ask():
            return (
                transport.get_extra_info("peername"),
                transport.is_closing(),
                transport.is_reading(),
                transport.get_write_buffer_size(),
                transport.get_protocol(),
                repr(transport).startswith("<"),
            )

        assert await from_a_thread(loop, ask) == (peer.sock.getsockname(), False, True, 0, protocol, True)


async def test_many_threads_write_at_once(loop, sockets):
    """Whole pieces from several threads: nothing lost, no piece torn apart."""
    async with wire(sockets) as (transport, _, peer):
        coming = peer.start(peer._recv, 4 * 200 * 8)

        def work(n):
            for i in range(200):
                transport.write(b"<%d:%04d>" % (n, i))

        joins = [start_thread(work, n) for n in range(4)]
        got = await asyncio.wrap_future(coming)
        for join in joins:
            join()
        pieces = [got[i : i + 8] for i in range(0, len(got), 8)]
        for n in range(4):
            mine = [p for p in pieces if p.startswith(b"<%d:" % n)]
            assert mine == [b"<%d:%04d>" % (n, i) for i in range(200)]


async def test_closing_a_server(loop, sockets):
    factory, made = keeping()
    async with serve(factory) as (server, port):
        await from_a_thread(loop, server.close)
        await turns(2)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        assert made == []


def test_a_transport_of_a_loop_that_stands_still(loop, sockets):
    """Between two runs any thread may use the transport."""
    ours, theirs = sockets.pair(tcp=True)
    peer = sockets.peer(theirs)
    transport, protocol = run(loop, loop.create_connection(Recorder, sock=ours))
    start_thread(transport.write, b"one")()
    assert peer.now(3, 5) == b"one"
    start_thread(transport.close)()
    assert protocol.events == ["made"]
    run(loop, protocol.lost())


async def test_the_wakeup_is_what_brings_it_about(loop, sockets):
    """connection_lost() of a close() from another thread comes when the loop next wakes, in the loop's thread."""
    idents = []

    class Asks(Recorder):
        def connection_lost(self, exc):
            idents.append(threading.get_ident())
            super().connection_lost(exc)

    async with wire(sockets, Asks) as (transport, protocol, _):
        await from_a_thread(loop, transport.abort)
        await protocol.lost()
        await eventually(lambda: idents)
    assert idents == [threading.get_ident()]


# ---- pipes


@pytest.mark.parametrize("size", [1, 1000, 300_000])
async def test_writing_to_a_pipe(loop, sockets, size):
    """What the pipe takes leaves at once, the rest wakes the loop."""
    r, w = sockets.pipe()
    transport, protocol = await loop.connect_write_pipe(Recorder, w)
    blob = pattern(size)
    coming = asyncio.ensure_future(asyncio.to_thread(read_exactly, r, 2 * size))
    await from_a_thread(loop, transport.write, blob)
    transport.write(blob)
    same(await coming, blob * 2)
    transport.close()
    await protocol.lost()


def read_exactly(file, count):
    got = b""
    while len(got) < count and (chunk := file.read(count - len(got))):
        got += chunk
    return got


async def test_pausing_resuming_and_closing_a_pipe(loop, sockets):
    r, w = sockets.pipe()
    transport, protocol = await loop.connect_read_pipe(Recorder, r)
    await turns(2)
    await from_a_thread(loop, transport.pause_reading)
    w.write(b"x")
    await turns(5)
    assert protocol.events == ["made"]
    await from_a_thread(loop, transport.resume_reading)
    await protocol.got(1)
    await from_a_thread(loop, transport.close)
    assert await protocol.lost() is None
    await turns(1)
    assert r.closed
