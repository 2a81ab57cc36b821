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
"""More than a record holds, and so more than OpenSSL gives by one read. asyncio has 256 KiB made for each."""

_Stock: Any = sslproto.SSLProtocol


class SSLProtocol(_Stock):  # type: ignore[misc]
    """The protocol of a TLS connection; see asyncio.sslproto.SSLProtocol, whose attributes it has."""

    def buffer_updated(self, nbytes: int) -> None:
        """Take encrypted data from the transport: asyncio's method, its _do_read and what that calls."""
        if self._state is not _WRAPPED or self._app_reading_paused:
            _Stock.buffer_updated(self, nbytes)
            return
        incoming = self._incoming
        incoming.write(self._ssl_buffer_view[:nbytes])
        try:
            if self._app_protocol_is_buffer:
                self._do_read__buffered()
            else:
                self._do_read__copied()
            if self._write_backlog:
                self._do_write()
            else:
                waiting = self._outgoing.pending
                if waiting and not self._ssl_writing_paused:
                    self._transport.write(self._outgoing.read())
                    waiting = 0
                if self._app_writing_paused or waiting + self._write_buffer_size >= self._outgoing_high_water:
                    self._control_app_writing()
            if self._ssl_reading_paused or incoming.pending >= self._incoming_high_water:
                self._control_ssl_reading()
        except Exception as exc:
            self._fatal_error(exc, "Fatal error on SSL protocol")

    def _do_read__copied(self) -> None:
        sslobj: Any = self._sslobj
        incoming = self._incoming
        # An SSLObject's own methods do nothing but call those that are inside it.
        read = sslobj._sslobj.read if type(sslobj) is _SSLObject else sslobj.read
        try:
            first = chunk = read(_MOST)
            # OpenSSL takes no more from the BIO than the record it gives. So where nothing is left in there the next
            # read could only raise: asyncio makes and catches that exception once a request.
            if incoming.pending and chunk:
                chunks = [chunk]
                try:
                    while chunk and incoming.pending:
                        chunk = read(_MOST)
                        chunks.append(chunk)
                except _AGAIN:
                    pass
                first = b"".join(chunks)
        except _AGAIN:
            return
        if first:
            self._app_protocol.data_received(first)
        if not chunk:
            # close_notify
            self._call_eof_received()
            self._start_shutdown()

    def _write_appdata(self, list_of_data: Iterable[Any]) -> None:
        if self._state is not _WRAPPED:
            _Stock._write_appdata(self, list_of_data)
            return
        sslobj: Any = self._sslobj
        backlog = self._write_backlog
        write = sslobj._sslobj.write if type(sslobj) is _SSLObject else sslobj.write
        for data in list_of_data:
            backlog.append(data)
            self._write_buffer_size += len(data)
        try:
            try:
                while backlog:
                    data = backlog[0]
                    count = write(data)
                    length = len(data)
                    if count < length:
                        backlog[0] = data[count:]
                        self._write_buffer_size -= count
                    else:
                        del backlog[0]
                        self._write_buffer_size -= length
            except _AGAIN:
                pass
            if not self._ssl_writing_paused:
                sent = self._outgoing.read()
                if sent:
                    self._transport.write(sent)
            waiting = self._outgoing.pending + self._write_buffer_size
            if self._app_writing_paused or waiting >= self._outgoing_high_water:
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
