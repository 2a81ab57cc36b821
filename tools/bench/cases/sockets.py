"""The user's own sockets: sock_*, watchers, and connections that are made and closed; both ends on one loop."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from cases.kinds import Case, Loop, Micro, nothing


def _echo(loop: Loop, size: int) -> None:
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


def _connect(loop: Loop, size: int) -> None:
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


def _watch(loop: Loop, size: int) -> None:
    """As psycopg waits: a reader that is there for one wait."""
    ours, theirs = socket.socketpair()
    fd = ours.fileno()

    async def body() -> None:
        for _ in range(size):
            loop.add_reader(fd, nothing)
            loop.remove_reader(fd)

    with ours, theirs:
        loop.run_until_complete(body())


def _watch_wait(loop: Loop, size: int) -> None:
    """The same with something to read each time."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    fd = ours.fileno()

    async def body() -> None:
        for _ in range(size):
            arrived = loop.create_future()
            theirs.send(b"x")
            loop.add_reader(fd, arrived.set_result, None)
            await arrived
            loop.remove_reader(fd)
            os.read(fd, 16)

    with ours, theirs:
        loop.run_until_complete(body())


def _open(loop: Loop, size: int) -> None:
    async def body() -> None:
        for _ in range(size):
            transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
            accepted, _ = listener.accept()
            accepted.close()
            transport.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        loop.run_until_complete(body())


class _Unconnected(asyncio.SelectorEventLoop):
    """Does what asyncio's create_connection() does, but for what any loop has to do for it."""

    async def _connect_sock(self, *args: Any, **kwargs: Any) -> Any:
        return self  # stands for the socket, which nobody asks for anything

    async def _create_connection_transport(self, *args: Any, **kwargs: Any) -> Any:
        return None, None


def _open_nothing(loop: Loop, size: int) -> None:
    if not _unconnected:
        _unconnected.append(_Unconnected())

    async def body() -> None:
        create_connection = _unconnected[0].create_connection
        for _ in range(size):
            await create_connection(asyncio.Protocol, "127.0.0.1", 1)

    _unconnected[0].run_until_complete(body())


_unconnected: list[_Unconnected] = []


def _open_bare(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(size):
            with socket.create_connection(listener.getsockname()):
                listener.accept()[0].close()


CASES: dict[str, Case] = {
    "sock_pair": Micro(
        text="sock_sendall and sock_recv, 1 KiB there and back over a socket pair", run=_echo, size=1_000, counted=500
    ),
    "sock_connect": Micro(
        text="sock_connect, sock_accept, close over TCP, one after the other", run=_connect, size=100, counted=100
    ),
    "watchers": Micro(text="add_reader and remove_reader", run=_watch, size=1_000, counted=1_000),
    "watcher_waits": Micro(text="add_reader, a byte arrives, remove_reader", run=_watch_wait, size=500, counted=500),
    "connect_close": Micro(
        text="create_connection to a bare listener, accepted and closed", run=_open, size=50, bare=_open_bare
    ),
    "connect_python": Micro(
        text="create_connection of asyncio's, with nothing to connect: what it costs in Python",
        run=_open_nothing,
        size=500,
    ),
}
