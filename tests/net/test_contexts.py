"""In which context each callback of a transport runs, and what the callbacks set in theirs: from 3.15 on a stream has
one of its own from the start; before, and everywhere else, what runs later has a copy of its caller's.
"""

import asyncio
import contextvars
import os
import sys

import pytest

from support.drive import eventually, turns
from support.peers import MB
from support.protocols import SIDES, Recorder, wire

ONE_CONTEXT = sys.version_info >= (3, 15)

var = contextvars.ContextVar("var", default="outside")


class Marks(Recorder):
    """Keeps what `var` is in each callback, and adds the callback's first letter to it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def _note(self, event):
        self.seen.append((event, var.get()))
        var.set(f"{var.get()} {event[0]}")
        super()._note(event)


async def sent(peer, protocol, data):
    count = len(protocol.data)
    peer.sock.send(data)
    await protocol.got(count + len(data))


@pytest.mark.parametrize("side", SIDES)
async def test_made_and_read(loop, sockets, side):
    """What connection_made() sets is there in data_received() where the transport has one context."""
    var.set("making")
    async with wire(sockets, Marks, side) as (_, protocol, peer):
        var.set("later")
        await sent(peer, protocol, b"1")
        await sent(peer, protocol, b"2")
        peer.close()
        await protocol.lost()
        read = "making m" if ONE_CONTEXT else "making"
        assert protocol.seen == [
            ("made", "making"),
            ("data", read),
            ("data", f"{read} d"),
            ("eof", f"{read} d d"),
            ("lost", f"{read} d d e"),
        ]


@pytest.mark.parametrize("side", SIDES)
async def test_resumed_reading(loop, sockets, side):
    var.set("making")
    async with wire(sockets, Marks, side) as (transport, protocol, peer):
        await sent(peer, protocol, b"1")
        var.set("pausing")
        transport.pause_reading()
        await turns(2)
        var.set("resuming")
        transport.resume_reading()
        var.set("later")
        await sent(peer, protocol, b"2")
        assert protocol.seen[-1] == ("data", "making m d" if ONE_CONTEXT else "resuming")


@pytest.mark.parametrize("ending", ["close", "abort"])
@pytest.mark.parametrize("side", SIDES)
async def test_lost(loop, sockets, side, ending):
    var.set("making")
    async with wire(sockets, Marks, side) as (transport, protocol, _):
        var.set("ending")
        getattr(transport, ending)()
        var.set("later")
        await protocol.lost()
        assert protocol.seen[-1] == ("lost", "making m" if ONE_CONTEXT else "ending")


@pytest.mark.parametrize("side", SIDES)
async def test_paused_and_resumed_writing(loop, sockets, side):
    """pause_writing() is called by write() itself, resume_writing() by the transport."""
    var.set("making")
    async with wire(sockets, Marks, side) as (transport, protocol, peer):
        var.set("writing")
        transport.write(bytes(20 * MB))
        assert protocol.seen[-1] == ("pause", "writing")
        var.set("later")
        await peer.recv(20 * MB)
        await protocol.has("resume")
        assert protocol.seen[-1] == ("resume", "making m" if ONE_CONTEXT else "writing")
        transport.close()
        await protocol.lost()


async def test_connections_of_a_server_have_contexts_apart(loop, sockets):
    made = []

    def factory():
        var.set(f"{var.get()} f")
        made.append(Marks())
        return made[-1]

    var.set("serving")
    server = await loop.create_server(factory, "127.0.0.1", 0)
    var.set("later")
    for _ in range(2):
        peer = sockets.dial(server.sockets[0].getsockname()[1])
        peer.sock.send(b"x")
        await eventually(lambda: made and made[-1].data)
        peer.close()
        await made[-1].lost()
        read = "serving f m" if ONE_CONTEXT else "serving f"
        assert made[-1].seen == [
            ("made", "serving f"),
            ("data", read),
            ("eof", f"{read} d"),
            ("lost", f"{read} d e"),
        ]
        made[-1].seen.clear()
        made[-1].data.clear()
    server.close()
    await server.wait_closed()


async def test_a_stream_made_without_a_context(loop, sockets):
    """As subclasses and libraries make them: then there is none to keep, in any version."""
    ours, theirs = sockets.pair()
    protocol = Marks()
    var.set("making")
    transport = loop._make_socket_transport(ours, protocol)
    await protocol.has("made")
    theirs.send(b"1")
    await protocol.got(1)
    var.set("closing")
    transport.close()
    var.set("later")
    await protocol.lost()
    assert protocol.seen == [("made", "making"), ("data", "making"), ("lost", "closing")]


class MarksOfDatagrams(asyncio.DatagramProtocol):
    def __init__(self):
        self.seen = []

    def connection_made(self, transport):
        self.note("made")

    def datagram_received(self, data, addr):
        self.note("data")

    def connection_lost(self, exc):
        self.note("lost")

    def note(self, event):
        self.seen.append((event, var.get()))
        var.set(f"{var.get()} {event[0]}")


@pytest.mark.parametrize("ending", ["close", "abort"])
async def test_datagrams(loop, sockets, ending):
    """Endpoints are given no context to keep, in any version."""
    var.set("making")
    transport, protocol = await loop.create_datagram_endpoint(MarksOfDatagrams, ("127.0.0.1", 0))

    address = transport.get_extra_info("sockname")

    async def one_more():
        count = len(protocol.seen)
        transport.sendto(b"x", address)
        await eventually(lambda: len(protocol.seen) > count)

    var.set("later")
    await one_more()
    await one_more()
    transport.pause_reading()
    var.set("resuming")
    transport.resume_reading()
    var.set("later")
    await one_more()
    await one_more()
    var.set("ending")
    getattr(transport, ending)()
    var.set("later")
    await eventually(lambda: protocol.seen[-1][0] == "lost")
    assert protocol.seen == [
        ("made", "making"),
        ("data", "making"),
        ("data", "making d"),
        ("data", "resuming"),
        ("data", "resuming d"),
        ("lost", "ending"),
    ]


async def test_pipes(loop):
    var.set("making")
    r, w = os.pipe()
    reading, protocol = await loop.connect_read_pipe(Marks, os.fdopen(r, "rb", 0))
    var.set("later")
    os.write(w, b"1")
    await protocol.got(1)
    var.set("resuming")
    reading.pause_reading()
    reading.resume_reading()
    var.set("later")
    os.write(w, b"2")
    await protocol.got(2)
    var.set("closing")
    reading.close()
    var.set("later")
    await protocol.lost()
    os.close(w)
    assert protocol.seen == [("made", "making"), ("data", "making"), ("data", "resuming"), ("lost", "closing")]
