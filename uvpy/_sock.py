# SPDX-License-Identifier: MIT
"""The coroutines of sock_recv() and its siblings, and of a sendfile over a socket: a base of `uvpy.Loop`.

Each hands its arguments to `uvpy._core`, which tries at once and gives the result or, where the socket has nothing or
no room, a SockCall: its future is awaited here, and it is let go of when something else than its end comes out of that.
What is checked, tried and waited for is native; only sock_connect(), which resolves names, does work of its own.
"""

from __future__ import annotations

import inspect
import io
import socket
from asyncio import base_events, exceptions, unix_events
from typing import Any

from . import _core
from ._core import SockCall, sock_accept, sock_recv, sock_recv_into, sock_recvfrom, sock_recvfrom_into, sock_sendall

_base_events: Any = base_events
_unix_events: Any = unix_events

# Newer versions of asyncio leave the file's position at the offset also where nothing was sent.
_SEEKS_ALWAYS = (
    "total_sent" not in inspect.signature(_unix_events._UnixSelectorEventLoop._sock_sendfile_update_filepos).parameters
)


class SocketCalls:
    """sock_recv() and its siblings of a loop."""

    async def sock_recv(self, sock: socket.socket, n: int) -> bytes:
        """Receive up to `n` bytes; b"" at the end. See asyncio.loop.sock_recv."""
        call = sock_recv(self, sock, n)
        if type(call) is not SockCall:
            return call
        try:
            result: bytes = await call.future
        except BaseException:
            call.release()
            raise
        return result

    async def sock_recv_into(self, sock: socket.socket, buf: Any) -> int:
        """Receive into a writable buffer; how many bytes. See asyncio.loop.sock_recv_into."""
        call = sock_recv_into(self, sock, buf)
        if type(call) is not SockCall:
            return call
        try:
            result: int = await call.future
        except BaseException:
            call.release()
            raise
        return result

    async def sock_recvfrom(self, sock: socket.socket, bufsize: int) -> Any:
        """Receive a datagram; its bytes and its sender's address. See asyncio.loop.sock_recvfrom."""
        call = sock_recvfrom(self, sock, bufsize)
        if type(call) is not SockCall:
            return call
        try:
            return await call.future
        except BaseException:
            call.release()
            raise

    async def sock_recvfrom_into(self, sock: socket.socket, buf: Any, nbytes: int = 0) -> Any:
        """Receive a datagram into a writable buffer, at most `nbytes` of it unless 0; how many bytes, and the address.

        See asyncio.loop.sock_recvfrom_into.
        """
        call = sock_recvfrom_into(self, sock, buf, nbytes)
        if type(call) is not SockCall:
            return call
        try:
            return await call.future
        except BaseException:
            call.release()
            raise

    async def sock_sendall(self, sock: socket.socket, data: Any) -> None:
        """Send all of `data`. See asyncio.loop.sock_sendall.

        Data of another format than bytes is sent whole, too. After an error nobody knows how much was sent.
        """
        call = sock_sendall(self, sock, data)
        if type(call) is not SockCall:
            return
        try:
            await call.future
        except BaseException:
            call.release()
            raise

    async def sock_sendto(self, sock: socket.socket, data: Any, address: Any) -> int:
        """Send a datagram; how many bytes. See asyncio.loop.sock_sendto."""
        call = _core.sock_sendto(self, sock, data, address)
        if type(call) is not SockCall:
            return call
        try:
            result: int = await call.future
        except BaseException:
            call.release()
            raise
        return result

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect to an address, whose host is resolved first. See asyncio.loop.sock_connect."""
        _core.sock_check(self, sock)
        if sock.family == socket.AF_INET or (_base_events._HAS_IPv6 and sock.family == socket.AF_INET6):
            loop: Any = self
            resolved = await loop._ensure_resolved(
                address, family=sock.family, type=sock.type, proto=sock.proto, loop=self
            )
            _, _, _, _, address = resolved[0]
        call = _core.sock_connect(self, sock, address)
        if type(call) is not SockCall:
            return
        try:
            await call.future
        except BaseException:
            call.release()
            raise

    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        """Accept a connection; a non-blocking socket and the address of the other end. See asyncio.loop.sock_accept.

        A client that was accepted in the very moment in which the call was cancelled is closed.
        """
        call = sock_accept(self, sock)
        if type(call) is not SockCall:
            return call
        try:
            result: tuple[socket.socket, Any] = await call.future
        except BaseException:
            lost = call.release()
            if lost is not None:
                lost[0].close()
            raise
        return result

    async def _sock_sendfile_native(self, sock: socket.socket, file: Any, offset: int, count: int | None) -> int:
        if not hasattr(_unix_events.os, "sendfile"):
            raise exceptions.SendfileNotAvailableError("os.sendfile() is not available")
        try:
            fileno = file.fileno()
        except (AttributeError, io.UnsupportedOperation):
            raise exceptions.SendfileNotAvailableError("not a regular file") from None
        call = _core.sock_sendfile(self, sock, file, fileno, offset, count, _SEEKS_ALWAYS)
        if type(call) is not SockCall:
            return call
        try:
            result: int = await call.future
        except BaseException:
            call.release()
            raise
        return result


for _name, _function in list(vars(SocketCalls).items()):  # methods of Loop, to whoever asks
    if inspect.iscoroutinefunction(_function):
        _function.__module__, _function.__qualname__ = "uvpy._loop", f"Loop.{_name}"
