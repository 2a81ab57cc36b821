"""The barest loop: what epoll finds ready is called, and nothing else is done. A request of TLS costs on it what
OpenSSL, the kernel, and SSLProtocol or aiofastnet cost. The SSLProtocol is uvpy's: with asyncio's own it were no
floor.

It has as much of a loop's methods as the servers of TLS ask for. No timer ever fires, nothing is ever closed well, an
error ends the process.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from uvpy import _tls


class Loop:
    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.readers: dict[int, Callable[[], object]] = {}
        self.soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.running = False

    def run_forever(self) -> None:
        self.running = True
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        readers, soon, poll = self.readers, self.soon, self.epoll.poll
        while True:
            while soon:
                callback, args = soon.popleft()
                callback(*args)
            if not self.running:
                break
            for fd, _ in poll():
                readers[fd]()
        asyncio._set_running_loop(None)

    def stop(self) -> None:
        self.running = False

    def close(self) -> None:
        self.epoll.close()

    def run_until_complete(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        task = self.create_task(coroutine)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        known = fd in self.readers
        self.readers[fd] = (lambda: callback(*args)) if args else callback
        if not known:
            self.epoll.register(fd, select.EPOLLIN)

    def remove_reader(self, fd: int) -> bool:
        if self.readers.pop(fd, None) is None:
            return False
        self.epoll.unregister(fd)
        return True

    def remove_writer(self, fd: int) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        self.soon.append((callback, args))
        return asyncio.Handle(callback, args, self)  # type: ignore[arg-type]

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        return asyncio.Handle(callback, args, self)  # type: ignore[arg-type]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise SystemExit(f"{context['message']}: {context.get('exception')!r}")

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coroutine, loop=self)  # type: ignore[arg-type]

    async def getaddrinfo(self, host: str, port: int, **hints: Any) -> list[Any]:
        return socket.getaddrinfo(host, port, **hints)

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return time.monotonic()

    async def create_server(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        ssl: ssl.SSLContext,
        backlog: int = 100,
    ) -> Server:
        listener = sock or socket.create_server((host or "", port or 0), backlog=backlog)
        listener.setblocking(False)

        def accept() -> None:
            connection, _ = listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = _tls.protocol_class()(self, factory(), ssl, None, server_side=True)
            Transport(self, connection, protocol)

        self.add_reader(listener.fileno(), accept)
        return Server(listener)


class Server:
    def __init__(self, listener: socket.socket) -> None:
        self.sockets = [listener]


class Transport:
    """A socket that a protocol is fed from; what it writes is sent, and has to be taken whole."""

    def __init__(self, loop: Loop, sock: socket.socket, protocol: Any) -> None:
        self.loop, self.sock = loop, sock
        self.write = sock.send
        receive, get_buffer, updated = sock.recv_into, protocol.get_buffer, protocol.buffer_updated

        def ready() -> None:
            got = receive(get_buffer(-1))
            if got:
                updated(got)
            else:
                self.close()

        protocol.connection_made(self)
        loop.add_reader(sock.fileno(), ready)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.sock.fileno() < 0

    def close(self) -> None:
        if not self.is_closing():
            self.loop.remove_reader(self.sock.fileno())
            self.sock.close()

    def _force_close(self, exc: BaseException | None) -> None:
        self.close()


new_event_loop = Loop
