"""The servers under load: one source for all loops. SERVERS gives what starts one and tells its address."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # cases.counted imports this module
    from cases.kinds import Load, Loop

BACKLOG = 4096
RECEIVE = 256 * 1024

Starter = Callable[["Loop", "Load"], Awaitable[str]]


class EchoProtocol(asyncio.Protocol):
    loop: Loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write  # uvloop's are of no class of asyncio's

    def data_received(self, data: bytes) -> None:
        self.write(data)


class _Buffered(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(64 * 1024))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.write(bytes(self.buffer[:nbytes]))


class _Pieces(EchoProtocol):
    """Answers in so many writes, or with writes of so many bytes."""

    def __init__(self, writes: int = 0, size: int = 0) -> None:
        self.writes, self.size = writes, size

    def data_received(self, data: bytes) -> None:
        size = self.size or -(-len(data) // self.writes)
        for start in range(0, len(data), size):
            self.write(data[start : start + size])


class _Idle(asyncio.Protocol):
    """As small as a protocol may be; answers, so that the client sees that it was accepted."""

    __slots__ = ("transport",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class _Offloading(EchoProtocol):
    """Each answer takes a millisecond of Python in a thread."""

    def __init__(self, loop: Loop, pool: concurrent.futures.Executor) -> None:
        self.loop, self.pool = loop, pool

    def data_received(self, data: bytes) -> None:
        self.loop.run_in_executor(self.pool, compute, 1e-3).add_done_callback(lambda _: self.write(data))


class _Hashing(EchoProtocol):
    """Each callback gives the GIL up itself, for a hash of 64 KiB, and has to get it back."""

    block = bytes(64 * 1024)

    def data_received(self, data: bytes) -> None:
        hashlib.sha256(self.block).digest()
        self.write(data)


class _Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.sendto = cast(asyncio.DatagramTransport, transport).sendto

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.sendto(data, addr)


class _Bulk(_Datagrams):
    """Answers the last of a batch; they are numbered."""

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not data[0] & 31:
            self.sendto(data, addr)


def compute(seconds: float) -> None:
    """So much work of the interpreter's, by this thread's own processor time; looking at that clock costs a call."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(5000):
            pass


def _listener(case: Load) -> tuple[socket.socket, str]:
    """With its address, since some loops take the socket away."""
    if case.transport == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.environ["BENCH_PATH"])
        listener.listen(BACKLOG)
    elif case.loops > 1:
        # The first has a port of the kernel's, the others share it, and the kernel deals out the connections.
        port = next((kept.getsockname()[1] for kept in _kept if isinstance(kept, socket.socket)), 0)
        listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG, reuse_port=True)
    else:
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    listener.setblocking(False)
    _kept.append(listener)
    name = listener.getsockname()
    return listener, name if isinstance(name, str) else str(name[1])


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(os.environ["BENCH_CERTIFICATE"])
    return context


async def _protocol(factory: Callable[[], asyncio.BaseProtocol], loop: Loop, case: Load) -> str:
    listener, address = _listener(case)
    if case.transport == "unix":
        await loop.create_unix_server(factory, sock=listener, backlog=BACKLOG)
    else:
        context = server_context() if case.transport == "tls" else None
        await loop.create_server(factory, sock=listener, ssl=context, backlog=BACKLOG)
    return address


async def _streams(loop: Loop, case: Load) -> str:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(64 * 1024):
            writer.write(data)
            await writer.drain()
        writer.close()

    listener, address = _listener(case)
    _kept.append(await asyncio.start_server(answer, sock=listener, backlog=BACKLOG))
    return address


async def _sock(loop: Loop, case: Load) -> str:
    async def answer(connection: socket.socket) -> None:
        with connection:
            while data := await loop.sock_recv(connection, RECEIVE):
                await loop.sock_sendall(connection, data)

    async def accept() -> None:
        while True:
            connection, _ = await loop.sock_accept(listener)
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _kept.append(loop.create_task(answer(connection)))

    listener, address = _listener(case)
    _kept.append(loop.create_task(accept()))
    return address


async def _udp(factory: Callable[[], asyncio.DatagramProtocol], loop: Loop, case: Load) -> str:
    transport, _ = await loop.create_datagram_endpoint(factory, ("127.0.0.1", 0))
    return str(transport.get_extra_info("sockname")[1])


async def _ticking(loop: Loop, case: Load) -> str:
    def tick() -> None:
        loop.call_later(0.01, tick)
        compute(1e-3)

    tick()
    return await _protocol(EchoProtocol, loop, case)


async def _offloading(loop: Loop, case: Load) -> str:
    pool = concurrent.futures.ThreadPoolExecutor(4)
    return await _protocol(lambda: _Offloading(loop, pool), loop, case)


async def _http(name: str, loop: Loop, case: Load) -> str:
    import http_servers  # its packages are imported where they are used only

    listener, address = _listener(case)
    _kept.append(await http_servers.STARTERS[name](loop, listener))
    return address


_kept: list[object] = []
"""What must live as long as the process."""

SERVERS: dict[str, Starter] = {
    "protocol": partial(_protocol, EchoProtocol),
    "unix": partial(_protocol, EchoProtocol),
    "tls": partial(_protocol, EchoProtocol),
    "buffered": partial(_protocol, _Buffered),
    "writes1": partial(_protocol, partial(_Pieces, writes=1)),
    "writes2": partial(_protocol, partial(_Pieces, writes=2)),
    "writes5": partial(_protocol, partial(_Pieces, writes=5)),
    "pieces100": partial(_protocol, partial(_Pieces, size=100)),
    "idle": partial(_protocol, _Idle),
    "streams": _streams,
    "sock": _sock,
    "udp": partial(_udp, _Datagrams),
    "udp_bulk": partial(_udp, _Bulk),
    "ticking": _ticking,
    "offloading": _offloading,
    "hashing": partial(_protocol, _Hashing),
    "http_raw": partial(_http, "raw"),
    "uvicorn": partial(_http, "uvicorn"),
    "aiohttp": partial(_http, "aiohttp"),
}
