"""Datagram endpoints for tests: a protocol that keeps what it is told, endpoints that are ended, peers that are plain
sockets, and queues that are full.
"""

import asyncio
import contextlib
import socket

from support.drive import eventually, turns


class Datagrams(asyncio.DatagramProtocol):
    """.got (data, address), .errors, .events in order."""

    def __init__(self):
        self.got, self.errors, self.events, self.exc, self.transport = [], [], [], None, None

    def connection_made(self, transport):
        self.transport = transport
        self.events.append("made")

    def datagram_received(self, data, addr):
        self.got.append((data, addr))
        self.events.append("data")

    def error_received(self, exc):
        self.errors.append(exc)
        self.events.append("error")

    def pause_writing(self):
        self.events.append("pause")

    def resume_writing(self):
        self.events.append("resume")

    def connection_lost(self, exc):
        self.exc = exc
        self.events.append("lost")

    @property
    def data(self):
        return [data for data, _ in self.got]

    async def has(self, event, times=1):
        await eventually(lambda: self.events.count(event) >= times)

    async def lost(self):
        await self.has("lost")
        return self.exc


@contextlib.asynccontextmanager
async def endpoint(factory=Datagrams, **kwargs):
    """(transport, protocol), on 127.0.0.1 unless told otherwise; aborted at the end."""
    kwargs = kwargs or {"local_addr": ("127.0.0.1", 0)}
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(factory, **kwargs)
    try:
        yield transport, protocol
    finally:
        with contextlib.suppress(AttributeError):  # stock: after a close that had to flush
            transport.abort()
        await turns(3)


def plain(sockets, host="127.0.0.1"):
    """A bound UDP socket that blocks for a while."""
    sock = sockets.own(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM))
    sock.bind((host, 0))
    sock.settimeout(5)
    return sock


def nowhere():
    """An address of loopback on which nobody receives."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()


def queue(sockets, folder):
    """Two Unix sockets, the first connected to the second, whose queue is short: who sends to it has to wait."""
    ours, theirs = (sockets.own(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(2))
    theirs.bind(str(folder / "queue.sock"))
    ours.connect(str(folder / "queue.sock"))
    for sock in (ours, theirs):
        sock.setblocking(False)
    return ours, theirs


def jam(transport, *addr, size=6):
    """Send until the transport has to keep one; how many were sent, that one too."""
    count = 0
    while not transport.get_write_buffer_size():
        transport.sendto(b"%0*d" % (size, count), *addr)
        count += 1
        assert count < 20_000, "the transport never keeps a datagram"
    return count


def drain(sock):
    """What has come to a non-blocking socket."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(sock.recv(70_000))
    return found
