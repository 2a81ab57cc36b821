"""The cases. Whatever loop runs them, the code is this; nothing here asks which it is.

A micro case runs in one process and is measured there. An echo case is a server that is loaded from another
process, and what is measured is the server.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from typing import NamedTuple, cast

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
    "sock_echo": Micro("sock_sendall and sock_recv, 1 KiB there and back over a socket pair", sock_echo, 1_000, 1_000),
    "sock_connect": Micro("sock_connect, sock_accept, close over TCP, one after the other", sock_connect, 100, 100),
    "timers": Micro("100,000 timers made and fired, due within 0.1 s", timers, 100_000, 5_000),
}

ECHO = {
    "tcp_echo": Echo("TCP echo, asyncio.Protocol, 1 KiB, 10 connections", 10, 1024),
    "tcp_echo_t": Echo("the same with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ set", 10, 1024, tuned=True),
}

CASES: dict[str, Micro | Echo] = {**MICRO, **ECHO}


def usage() -> tuple[float, float]:
    """This process's processor time so far, in user and system. The sum is exact, the split is by clock ticks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


class EchoProtocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write  # uvloop's are of no class of asyncio's

    def data_received(self, data: bytes) -> None:
        self.write(data)


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
