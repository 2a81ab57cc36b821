"""The cases. Whatever loop runs them, the code is this; nothing here asks which it is.

A micro case runs in one process and is measured there. An echo case is a server that is loaded from another
process, and what is measured is the server.
"""

from __future__ import annotations

import asyncio
import io
import os
import resource
import socket
from collections.abc import Callable
from typing import Any, NamedTuple, cast

TURN = 1000
"""How many operations a micro case puts into one turn of the loop, where it is not one a turn."""


class Micro(NamedTuple):
    text: str
    run: Callable[[asyncio.AbstractEventLoop, int], None]
    size: int
    """Operations a batch, which is a call of run(); a turn takes as many batches as its time holds."""
    counted: int
    """The same where instructions are counted, some fifty times slower."""


class Echo(NamedTuple):
    text: str
    connections: int
    size: int
    tuned: bool = False
    """With glibc told to keep freed memory: asyncio's reads of 256 KiB then cost no mmap and munmap each."""
    datagrams: bool = False
    """Over UDP: so many sockets, a datagram at a time each."""


def nothing() -> None:
    pass


def _in_turns(loop: asyncio.AbstractEventLoop, size: int, operations: Callable[[int], None]) -> None:
    """Calls operations(TURN) in one turn after the other until there were `size`."""
    left = size

    def turn() -> None:
        nonlocal left
        if left <= 0:
            loop.stop()
            return
        operations(min(left, TURN))
        left -= TURN
        loop.call_soon(turn)

    loop.call_soon(turn)
    loop.run_forever()


def call_soon_burst(loop: asyncio.AbstractEventLoop, size: int) -> None:
    def operations(count: int) -> None:
        call_soon = loop.call_soon
        for _ in range(count):
            call_soon(nothing)

    _in_turns(loop, size, operations)


def call_soon_chain(loop: asyncio.AbstractEventLoop, size: int) -> None:
    call_soon = loop.call_soon
    left = size

    def link() -> None:
        nonlocal left
        left -= 1
        if left:
            call_soon(link)
        else:
            loop.stop()

    call_soon(link)
    loop.run_forever()


def call_later_cancel(loop: asyncio.AbstractEventLoop, size: int) -> None:
    def operations(count: int) -> None:
        call_later = loop.call_later
        for _ in range(count):
            call_later(60.0, nothing).cancel()

    _in_turns(loop, size, operations)


def timers(loop: asyncio.AbstractEventLoop, size: int) -> None:
    left = size

    def fire() -> None:
        nonlocal left
        left -= 1
        if not left:
            loop.stop()

    def start() -> None:
        call_later = loop.call_later
        for number in range(size):
            # Spread over 0.1 s in an order that is neither rising nor falling (7919 is prime).
            call_later(number * 7919 % size / size * 0.1, fire)

    loop.call_soon(start)
    loop.run_forever()


class _Pong(asyncio.Protocol):
    """What comes out of one pipe goes into the next."""

    def __init__(self) -> None:
        self.write: Callable[[bytes], None] = nothing_of

    def data_received(self, data: bytes) -> None:
        self.write(data)


class _Ping(_Pong):
    def __init__(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        super().__init__()
        self.loop, self.left = loop, left

    def data_received(self, data: bytes) -> None:
        self.left -= 1
        if self.left:
            self.write(data)
        else:
            self.loop.stop()


def nothing_of(data: bytes) -> None:
    pass


async def _pipe(
    loop: asyncio.AbstractEventLoop, reader: asyncio.Protocol, writer: asyncio.BaseProtocol
) -> tuple[asyncio.ReadTransport, asyncio.WriteTransport]:
    r, w = os.pipe()
    reading, _ = await loop.connect_read_pipe(lambda: reader, io.FileIO(r, "rb"))
    writing, _ = await loop.connect_write_pipe(lambda: writer, io.FileIO(w, "wb"))
    return reading, writing


async def _ended(*transports: asyncio.BaseTransport) -> None:
    for transport in transports:
        transport.close()
    for _ in range(5):
        await asyncio.sleep(0)


def pipe_echo(loop: asyncio.AbstractEventLoop, size: int) -> None:
    ping, pong = _Ping(loop, size), _Pong()
    there = loop.run_until_complete(_pipe(loop, pong, asyncio.BaseProtocol()))
    back = loop.run_until_complete(_pipe(loop, ping, asyncio.BaseProtocol()))
    ping.write, pong.write = there[1].write, back[1].write
    ping.write(bytes(64))
    loop.run_forever()
    loop.run_until_complete(_ended(*there, *back))


class _Counter(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        self.loop, self.left = loop, left

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        if not self.left:
            self.loop.stop()


CHUNK = bytes(64 * 1024)


class _Source(asyncio.BaseProtocol):
    """Writes chunks while it may."""

    def __init__(self, left: int) -> None:
        self.left, self.paused = left, False
        self.write: Callable[[bytes], None] = nothing_of

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.go()

    def go(self) -> None:
        while self.left and not self.paused:
            self.left -= 1
            self.write(CHUNK)


def pipe_stream(loop: asyncio.AbstractEventLoop, size: int) -> None:
    source = _Source(size)
    transports = loop.run_until_complete(_pipe(loop, _Counter(loop, size * len(CHUNK)), source))
    source.write = transports[1].write
    loop.call_soon(source.go)
    loop.run_forever()
    loop.run_until_complete(_ended(*transports))


def spawn(loop: asyncio.AbstractEventLoop, size: int) -> None:
    async def one() -> None:
        await (await asyncio.create_subprocess_exec("/bin/true")).wait()

    async def all_at_once() -> None:
        await asyncio.gather(*(one() for _ in range(size)))

    loop.run_until_complete(all_at_once())


_ballast = bytearray()


def spawn_big(loop: asyncio.AbstractEventLoop, size: int) -> None:
    if not _ballast:
        _ballast.extend(b"x" * (500 << 20))  # written, so that it is in memory
    spawn(loop, size)


def sock_echo(loop: asyncio.AbstractEventLoop, size: int) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    message = bytes(1024)

    async def answer() -> None:
        for _ in range(size):
            await loop.sock_sendall(theirs, await loop.sock_recv(theirs, 65536))

    async def ask() -> None:
        answering = loop.create_task(answer())
        for _ in range(size):
            await loop.sock_sendall(ours, message)
            await loop.sock_recv(ours, 65536)
        await answering

    with ours, theirs:
        loop.run_until_complete(ask())


def sock_connect(loop: asyncio.AbstractEventLoop, size: int) -> None:
    async def accept() -> None:
        for _ in range(size):
            (await loop.sock_accept(listener))[0].close()

    async def connect() -> None:
        accepting = loop.create_task(accept())
        for _ in range(size):
            with socket.socket() as client:
                client.setblocking(False)
                await loop.sock_connect(client, listener.getsockname())
                await loop.sock_recv(client, 1)
        await accepting

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        loop.run_until_complete(connect())


MICRO = {
    "call_soon_burst": Micro(f"call_soon, {TURN:,} callbacks a turn", call_soon_burst, 5_000, 5_000),
    "call_soon_chain": Micro("call_soon, each callback schedules the next", call_soon_chain, 5_000, 1_000),
    "call_later_cancel": Micro(f"call_later and cancel, {TURN:,} a turn", call_later_cancel, 5_000, 5_000),
    "pipe_echo": Micro("64 bytes there and back through two pipes of one loop", pipe_echo, 500, 100),
    "pipe_stream": Micro("chunks of 64 KiB through a pipe, both ends on one loop", pipe_stream, 200, 20),
    "sock_echo": Micro("sock_sendall and sock_recv, 1 KiB there and back over a socket pair", sock_echo, 1_000, 1_000),
    "sock_connect": Micro("sock_connect, sock_accept, close over TCP, one after the other", sock_connect, 100, 100),
    "timers": Micro("100,000 timers made and fired, due within 0.1 s", timers, 100_000, 5_000),
}

# Measured as the micro cases are, but not in instructions: the work is the kernel's.
CHILDREN = {
    "spawn": Micro("/bin/true, four children at once, to their ends", spawn, 4, 4),
    "spawn_big": Micro("the same from a process of 500 MB", spawn_big, 4, 4),
}

ECHO = {
    "tcp_echo": Echo("TCP echo, asyncio.Protocol, 1 KiB, 10 connections", 10, 1024),
    "tcp_echo_t": Echo("the same with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ set", 10, 1024, tuned=True),
    "udp_echo": Echo("UDP echo, asyncio.DatagramProtocol, 1 KiB, 10 sockets", 10, 1024, datagrams=True),
    "udp_echo_t": Echo("the same with the two settings", 10, 1024, tuned=True, datagrams=True),
}

CASES: dict[str, Micro | Echo] = {**MICRO, **CHILDREN, **ECHO}


def usage() -> tuple[float, float]:
    """This process's processor time so far, in user and system. The sum is exact, the split is by clock ticks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


class EchoProtocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write  # uvloop's are of no class of asyncio's

    def data_received(self, data: bytes) -> None:
        self.write(data)


class EchoDatagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.sendto = cast(asyncio.DatagramTransport, transport).sendto

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.sendto(data, addr)


class ControlProtocol(asyncio.Protocol):
    """The load generator's line to the server: "u" is answered with its usage, "q" stops it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write

    def data_received(self, data: bytes) -> None:
        if data == b"u":
            user, system = usage()
            self.write(f"{user:.6f} {system:.6f}\n".encode())
        else:
            asyncio.get_running_loop().stop()
