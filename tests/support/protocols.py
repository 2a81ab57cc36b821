"""Protocols that keep what they are told, and wires: a transport of the loop under test with a Peer on the other
end.
"""

import asyncio
import contextlib

from support.drive import LIMIT, run, turn_until, turns
from support.peers import KB, MB


class _Notes:
    """Keeps what it is told: .events (names in order), .data, .exc, .transport."""

    def __init__(self):
        self.events, self.data, self.exc, self.transport = [], bytearray(), None, None
        self._changed = []

    def _note(self, event):
        self.events.append(event)
        for waiter in self._changed:
            if not waiter.done():
                waiter.set_result(None)
        self._changed.clear()

    def connection_made(self, transport):
        self.transport = transport
        self._note("made")

    def eof_received(self):
        self._note("eof")

    def pause_writing(self):
        self._note("pause")

    def resume_writing(self):
        self._note("resume")

    def connection_lost(self, exc):
        self.exc = exc
        self._note("lost")

    async def until(self, condition):
        """Wait until the condition holds after some event."""
        try:
            async with asyncio.timeout(LIMIT):
                while not condition():
                    waiter = asyncio.get_running_loop().create_future()
                    self._changed.append(waiter)
                    await waiter
        except TimeoutError:
            raise AssertionError(f"it did not come; so far {self.events[-9:]}, {len(self.data)} bytes") from None

    async def has(self, event, times=1):
        await self.until(lambda: self.events.count(event) >= times)

    async def lost(self):
        """Wait for connection_lost(); its argument."""
        await self.has("lost")
        return self.exc

    async def got(self, count):
        """Wait until so many bytes have come; all there are."""
        await self.until(lambda: len(self.data) >= count)
        return bytes(self.data)

    def order(self):
        """The events with runs of the same one written once."""
        return [e for i, e in enumerate(self.events) if i == 0 or self.events[i - 1] != e]


class Recorder(_Notes, asyncio.Protocol):
    """The stream protocol of most tests."""

    def data_received(self, data):
        self.data += data
        self._note("data")


class HalfOpen(Recorder):
    """Stays open after the peer's end of file."""

    def eof_received(self):
        super().eof_received()
        return True


class Buffered(_Notes, asyncio.BufferedProtocol):
    """A BufferedProtocol with a small buffer of its own; .hints are the sizes asked for."""

    def __init__(self, size=7):
        super().__init__()
        self.room, self.hints = memoryview(bytearray(size)), []

    def get_buffer(self, sizehint):
        self.hints.append(sizehint)
        return self.room

    def buffer_updated(self, nbytes):
        self.data += self.room[:nbytes]
        self._note("data")


class Wire:
    def __init__(self, transport, protocol, peer):
        self.transport, self.protocol, self.peer = transport, protocol, peer

    def __iter__(self):
        return iter((self.transport, self.protocol, self.peer))


SIDES = ("client", "accepted", "unix")


@contextlib.asynccontextmanager
async def wire(sockets, factory=Recorder, side="client"):
    """(transport, protocol, peer): a connection over TCP, as a client or an accepted one, or a Unix pair. Aborted
    at the end.
    """
    loop = asyncio.get_running_loop()
    ours, theirs = sockets.pair(tcp=side != "unix")
    peer = sockets.peer(theirs)
    connect = loop.connect_accepted_socket if side == "accepted" else loop.create_connection
    if side == "unix":
        connect = loop.create_unix_connection
    transport, protocol = await connect(factory, sock=ours)
    try:
        yield Wire(transport, protocol, peer)
    finally:
        await drop(transport)


def connect(loop, sockets, factory=Recorder, tcp=False):
    """(transport, protocol, blocking peer socket) of a loop that does not run."""
    ours, theirs = sockets.pair(tcp=tcp)
    transport, protocol = run(loop, loop.create_connection(factory, sock=ours))
    theirs.settimeout(5)
    return transport, protocol, theirs


def finish(loop, transport, protocol):
    """Abort a transport of a loop that does not run, and see its one end."""
    transport.abort()
    turn_until(loop, lambda: "lost" in protocol.events)
    assert protocol.events.count("lost") == 1


async def drop(transport):
    """End what may be ended already."""
    with contextlib.suppress(AttributeError):  # stock: after a close that had to flush
        transport.abort()
    await turns(4)


def keeping(kind=Recorder):
    """(factory, list of the protocols it made)."""
    made = []

    def factory():
        made.append(kind())
        return made[-1]

    return factory, made


@contextlib.asynccontextmanager
async def serve(factory=Recorder, host="127.0.0.1", **kwargs):
    """A TCP server on loopback; (server, port). Closed at the end."""
    server = await asyncio.get_running_loop().create_server(factory, host, 0, **kwargs)
    try:
        yield server, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await turns(4)


async def end_all(protocols):
    """Abort what is still connected and wait for the end of it."""
    for p in protocols:
        if p.transport is not None and "lost" not in p.events:
            p.transport.abort()
    for p in protocols:
        if p.transport is not None:
            await p.lost()
    await turns(4)


def write_until(transport, condition, unit=64 * KB):
    """Write until the condition holds; how much was written."""
    total = 0
    while not condition():
        assert total < 100 * MB, "what should come with writing does not come"
        transport.write(bytes(unit))
        total += unit
    return total


def stuff(transport, unit=64 * KB):
    """Write until the kernel takes no more and the transport has to keep some; how much was written."""
    return write_until(transport, transport.get_write_buffer_size, unit)


async def until_paused(transport, protocol):
    """Write until the protocol is told to pause; how much was written."""
    total = 0
    while "pause" not in protocol.events:
        transport.write(bytes(64 * KB))
        total += 64 * KB
        assert total < 100 * MB, "pause_writing() does not come"
        await asyncio.sleep(0)
    return total
