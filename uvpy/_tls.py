"""`SSLProtocol`: asyncio's own, in which what a request costs takes fewer steps.

Used by `Loop._make_ssl_transport`, where a native TLS transport would have its place. It has no state of its own, and
does in one function what asyncio's class does in five; what is rare (handshake, shutdown, errors, a full buffer) stays
with asyncio's methods, in the form of the interpreter that runs.
"""

from __future__ import annotations

import ssl
from asyncio import sslproto
from collections.abc import Iterable
from typing import Any

_sslproto: Any = sslproto
_WRAPPED = _sslproto.SSLProtocolState.WRAPPED
_AGAIN: tuple[type[BaseException], ...] = _sslproto.SSLAgainErrors

_SSLObject: Any = ssl.SSLObject

_MOST = 16 * 1024 + 1
"""More than a record holds, and so more than OpenSSL gives by one read. asyncio has 256 KiB made for each read."""

_Stock: Any = sslproto.SSLProtocol


class SSLProtocol(_Stock):  # type: ignore[misc]
    """The protocol of a TLS connection; see asyncio.sslproto.SSLProtocol, whose attributes it has."""

    def buffer_updated(self, nbytes: int) -> None:
        """Take encrypted data from the transport: asyncio's method, its _do_read and what that calls."""
        if self._state is not _WRAPPED or self._app_reading_paused or self._app_protocol_is_buffer:
            _Stock.buffer_updated(self, nbytes)
            return
        sslobj: Any = self._sslobj
        incoming, outgoing = self._incoming, self._outgoing
        incoming.write(self._ssl_buffer_view[:nbytes])
        # An SSLObject's own methods do nothing but call those that are inside it, which is all that it has.
        read = sslobj._sslobj.read if type(sslobj) is _SSLObject and len(sslobj.__dict__) == 1 else sslobj.read
        size = incoming.pending
        if not 0 < size < _MOST:
            size = _MOST
        data, chunks, ended = b"", None, False
        try:
            try:
                data = read(size)
                if not data:
                    ended = True
                # OpenSSL takes no more from the BIO than the record it gives. So where nothing is left in there, and
                # all of the record was given, the next read could only raise: asyncio makes and catches that exception
                # once a request.
                elif incoming.pending or len(data) == size:
                    chunks = [data]
                    while chunk := read(_MOST):
                        chunks.append(chunk)
                    ended = True
            except _AGAIN:
                pass
            if data:
                self._app_protocol.data_received(data if chunks is None else b"".join(chunks))
            if ended:
                # close_notify
                self._call_eof_received()
                self._start_shutdown()
            if self._write_backlog:
                self._do_write()
            else:
                waiting = outgoing.pending
                if waiting and not self._ssl_writing_paused:
                    self._transport.write(outgoing.read())
                    waiting = 0
                if self._app_writing_paused or waiting + self._write_buffer_size >= self._outgoing_high_water:
                    self._control_app_writing()
            if self._ssl_reading_paused or incoming.pending >= self._incoming_high_water:
                self._control_ssl_reading()
        except Exception as exc:
            self._fatal_error(exc, "Fatal error on SSL protocol")

    def _write_appdata(self, list_of_data: Iterable[Any]) -> None:
        # One piece, before which none waits: what write() gives. writelines() may give anything.
        if (
            self._state is not _WRAPPED
            or self._write_backlog
            or type(list_of_data) is not tuple
            or len(list_of_data) != 1
        ):
            _Stock._write_appdata(self, list_of_data)
            return
        sslobj: Any = self._sslobj
        outgoing = self._outgoing
        (data,) = list_of_data
        length = len(data)
        try:
            try:
                plain = type(sslobj) is _SSLObject and len(sslobj.__dict__) == 1
                count = sslobj._sslobj.write(data) if plain else sslobj.write(data)
            except _AGAIN:
                count = 0
            if count < length:
                self._write_backlog.append(data[count:] if count else data)
                self._write_buffer_size += length - count
                self._do_write()
                return
            waiting = outgoing.pending
            if waiting and not self._ssl_writing_paused:
                self._transport.write(outgoing.read())
                waiting = 0
            if self._app_writing_paused or waiting + self._write_buffer_size >= self._outgoing_high_water:
                self._control_app_writing()
        except Exception as exc:
            self._fatal_error(exc, "Fatal error on SSL protocol")


def _steps() -> list[Any]:
    """What SSLProtocol does in other ways: asyncio's methods as they are now, and those of ssl that it goes past."""
    stock, inner = vars(sslproto.SSLProtocol), vars(ssl.SSLObject)
    return [*(stock.get(name) for name in _NAMES), inner.get("read"), inner.get("write")]


_NAMES = (
    *("buffer_updated", "_do_read", "_do_read__copied", "_write_appdata", "_do_write", "_process_outgoing"),
    *("_control_app_writing", "_control_ssl_reading", "_get_write_buffer_size", "_get_read_buffer_size"),
)
_found = _steps()


def protocol_class() -> Any:
    """SSLProtocol, or asyncio's where a program has replaced that class or a method of it."""
    return SSLProtocol if sslproto.SSLProtocol is _Stock and _steps() == _found else sslproto.SSLProtocol
