"""Data that is in the kernel before the connection is made, or before it is read again: it comes after everything that
was scheduled by then, so that a program may still pause, upgrade to TLS, or change the protocol.
"""

import asyncio
import contextlib

import pytest

from support.drive import eventually, turns
from support.protocols import Recorder, drop

WAYS = ["create_connection", "connect_accepted_socket", "unix"]


@contextlib.asynccontextmanager
async def connect(sockets, way, factory, early=b"early", eof=False):
    """(transport, protocol) as the connecting coroutine returns them, with data waiting. Aborted at the end."""
    loop = asyncio.get_running_loop()
    ours, theirs = sockets.pair(tcp=way != "unix")
    peer = sockets.peer(theirs)
    peer.sock.sendall(early)
    if eof:
        peer.half_close()
    await asyncio.sleep(0.001)
    make = loop.connect_accepted_socket if way == "connect_accepted_socket" else loop.create_connection
    transport, protocol = await make(factory, sock=ours)
    try:
        yield transport, protocol
    finally:
        await drop(transport)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("eof", [False, True])
async def test_it_comes_after_the_coroutine_has_returned(loop, sockets, way, eof):
    async with connect(sockets, way, Recorder, eof=eof) as (transport, protocol):
        assert protocol.events == ["made"]
        await protocol.has("eof" if eof else "data")
        assert protocol.events[:2] == ["made", "data"]


@pytest.mark.parametrize("way", WAYS)
async def test_what_connection_made_schedules_comes_before_it(loop, sockets, way):
    class Schedules(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            loop.call_soon(self._note, "soon")
            self.task = loop.create_task(self.work())

        async def work(self):
            self._note("task")

    async with connect(sockets, way, Schedules) as (transport, protocol):
        await protocol.has("data")
        assert protocol.events == ["made", "soon", "task", "data"]


@pytest.mark.asyncio_gap("reads although it was paused before it began", since=(3, 11), until=(3, 11, 7))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["returned", "made", "soon"])
async def test_pausing_in_time_holds_it_back(loop, sockets, way, when):
    class Pauses(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            if when == "made":
                transport.pause_reading()
            elif when == "soon":
                loop.call_soon(transport.pause_reading)

    async with connect(sockets, way, Pauses) as (transport, protocol):
        if when == "returned":
            transport.pause_reading()
        await asyncio.sleep(0.005)
        assert protocol.events == ["made"]
        transport.resume_reading()
        assert await protocol.got(5) == b"early"


@pytest.mark.parametrize("way", WAYS)
async def test_another_protocol_set_in_time_gets_it(loop, sockets, way):
    async with connect(sockets, way, Recorder) as (transport, first):
        second = Recorder()
        transport.set_protocol(second)
        await eventually(lambda: second.data or first.data, 2)
        assert bytes(second.data) == b"early"
        assert first.events == ["made"]


@pytest.mark.asyncio_gap("reads although it was paused before it began", since=(3, 11), until=(3, 11, 7))
@pytest.mark.parametrize("way", WAYS)
async def test_what_is_scheduled_before_resuming_comes_before_it(loop, sockets, way):
    class Paused(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    async with connect(sockets, way, Paused) as (transport, first):
        await turns(3)
        second = Recorder()
        loop.call_soon(transport.set_protocol, second)
        transport.resume_reading()
        await eventually(lambda: second.data or first.data, 2)
        assert bytes(second.data) == b"early"
        assert first.events == ["made"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["returned", "task"])
async def test_tls_started_in_time_gets_the_clients_hello(loop, sockets, authority, way, where):
    """The client speaks at once; the server upgrades when it has the transport, or in a task of connection_made()."""
    secret, upgraded = Recorder(), []

    async def upgrade(transport, protocol):
        upgraded.append(await loop.start_tls(transport, secret, authority.server(), server_side=True))

    class Upgrades(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            if where == "task":
                self.task = loop.create_task(upgrade(transport, self))

    ours, theirs = sockets.pair(tcp=way != "unix")
    peer = sockets.peer(theirs)

    def client():
        with authority.client().wrap_socket(peer.sock, server_hostname="localhost") as tls:
            tls.sendall(b"ping")
            return tls.recv(4)

    talking = peer.start(client)
    await asyncio.sleep(0.01)
    make = loop.connect_accepted_socket if way == "connect_accepted_socket" else loop.create_connection
    transport, protocol = await make(Upgrades, sock=ours)
    if where == "returned":
        await asyncio.wait_for(upgrade(transport, protocol), 5)
    await eventually(lambda: upgraded)
    await secret.got(4)
    upgraded[0].write(b"pong")
    assert await asyncio.wrap_future(talking) == b"pong"
    assert bytes(secret.data) == b"ping"
    assert protocol.data == b""
    upgraded[0].abort()
    await turns(4)
