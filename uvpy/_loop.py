"""`Loop`: the seam between the native scheduler and asyncio.

`uvpy._core.Loop` has what runs per callback, `asyncio.BaseEventLoop` what runs per connection or per loop, in the form
of the interpreter that runs. Here stand only the hooks that BaseEventLoop leaves to its subclasses, and the pieces
borrowed by name from asyncio's own Unix loop: what runs once a connection, or for objects that only look like sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import selectors
import signal
import socket
import ssl
import sys
import threading
import time
import warnings
import weakref
from asyncio import selector_events, unix_events
from asyncio.log import logger
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from . import _core, _dns, _native, _process, _sock, _tls

# What is borrowed has asyncio's own classes for `self`; it works on any loop with the same hooks.
_selector_events: Any = selector_events
_unix_events: Any = unix_events
_Selector = _selector_events.BaseSelectorEventLoop
_Unix = _unix_events._UnixSelectorEventLoop

os.register_at_fork(before=_core.before_fork, after_in_child=_core.after_fork_in_child)


_NATIVE_TRANSPORTS = (_core.TCPTransport, _core.UnixTransport)
_NATIVE_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)


def _is_native(sock: Any) -> bool:
    """Whether a socket is one that the native transports take: a real stream socket, internet or Unix.

    By its real type: what only says that it is a socket has no descriptor for the kernel.
    """
    return issubclass(type(sock), socket.socket) and sock.family in _NATIVE_FAMILIES and sock.type == socket.SOCK_STREAM


def _takes_datagrams(sock: Any) -> bool:
    """The same for datagrams; raw internet sockets carry them, too."""
    if not issubclass(type(sock), socket.socket) or sock.family not in _NATIVE_FAMILIES:
        return False
    return sock.type == socket.SOCK_DGRAM or (sock.type == socket.SOCK_RAW and sock.family != socket.AF_UNIX)


class _Watches:
    """What asyncio's own transports ask a selector for when they describe themselves: who watches a descriptor."""

    def __init__(self, loop: Loop) -> None:
        self._loop = weakref.ref(loop)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """The SelectorKey of a watched descriptor; KeyError where there is none."""
        loop = self._loop()
        found = None if loop is None else loop._watched(fileobj)
        if found is None:
            raise KeyError(f"{fileobj!r} is not registered")
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        events, reader, writer = found
        return selectors.SelectorKey(fileobj, fd, events, (reader, writer))

    def select(self, timeout: float | None = None) -> NoReturn:
        """RuntimeError: code that polls by itself would take the loop's events away."""
        raise RuntimeError("uvpy's loop polls natively: it cannot be driven through a selector")


class _NotNestable:
    """What nest_asyncio and its copies ask a loop for before they replace its inside, which ours has in C++."""

    def __get__(self, loop: Loop | None, kind: type[Loop]) -> NoReturn:
        if loop is None:
            raise AttributeError("_nest_patched")
        raise ValueError(f"Can't patch loop of type {kind}: it polls natively, and nothing but itself can run it")


class _WakeupEnd:
    """The end of the loop's wake-up pipe that `signal.set_wakeup_fd` may have, as an object with `fileno()`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def fileno(self) -> int:
        return self._loop._wakeup_fd()


@contextlib.contextmanager
def _users_wakeup_fd_kept() -> Iterator[None]:
    """Undo what asyncio's signal methods do to the wakeup fd: ours records signals in their handlers.

    While the loop runs the descriptor is the loop's own, otherwise the program's; both are put back.
    """
    try:
        before = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
    except ValueError:  # not in the main thread: asyncio's method will say so
        before = None
    try:
        yield
    finally:
        if before is not None:
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)


def _record(loop: weakref.ref[Loop], signum: int, frame: object) -> None:
    """The handler of a signal that a loop handles: tells the loop, which looks for its callback in a turn of its own.

    As in asyncio, a handler that is removed between the signal and that turn is not called. Python loses no kind of
    signal.
    """
    target = loop()
    if target is not None and not target.is_closed():
        if target._hears_signals or target._thread_id == threading.get_ident():
            # The wakeup descriptor is the loop's: a byte for the same signal is in it.
            target._signals_told[signum] = target._signals_told.get(signum, 0) + 1
        target._add_callback_signalsafe(asyncio.Handle(target._handle_signal, (signum,), target))


class Loop(_core.Loop, _sock.SocketCalls, asyncio.BaseEventLoop):
    """An asyncio event loop in C++.

    `gil` says what the loop does where a busy thread holds the GIL ("adaptive", the default, or "plain"; the
    environment variable UVPY_GIL sets another default). ValueError for anything else.
    """

    def __init__(self, *, gil: Literal["adaptive", "plain"] | None = None) -> None:
        if gil is None:
            try:
                self._set_gil_policy(os.environ.get("UVPY_GIL") or "adaptive")
            except ValueError as exc:
                raise ValueError(f"the environment variable UVPY_GIL: {exc}") from None
        else:
            self._set_gil_policy(gil)
        asyncio.BaseEventLoop.__init__(self)
        self._signal_handlers: dict[int, asyncio.Handle] = {}
        self._signals_told: dict[int, int] = {}
        self._hears_signals = False
        self._signals_since: dict[int, float] = {}
        self._transports: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._unix_server_sockets: dict[socket.socket, int] = {}
        if hasattr(unix_events, "can_use_pidfd") and not hasattr(asyncio, "AbstractChildWatcher"):
            # From 3.14 on the loop itself owns the child watcher.
            self._watcher = (
                _unix_events._PidfdChildWatcher()
                if _unix_events.can_use_pidfd()
                else _unix_events._ThreadedChildWatcher()
            )

    _nest_patched = _NotNestable()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "_nest_patched"]

    def close(self) -> None:
        """Close the loop: drop what is scheduled, close what is open. RuntimeError while it runs."""
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        if not sys or sys.is_finalizing():
            self._close_at_exit()
        else:
            super().close()  # not by asyncio's module
            _process.leave_children(self)
            for sig in list(self._signal_handlers):
                self.remove_signal_handler(sig)
        self._shutdown()

    def _close_at_exit(self) -> None:
        """The part of close() that is asyncio's where modules may be empty already: this one, asyncio's, the others."""
        try:
            super().close()
        except AttributeError:  # in debug mode it logs, and the logger has gone
            self.set_debug(False)
            super().close()
        if self._signal_handlers and warnings:
            warnings.warn(
                f"Closing the loop {self!r} on interpreter shutdown stage, skipping signal handlers removal",
                ResourceWarning,
                source=self,
            )
        self._signal_handlers.clear()

    # -- TCP and Unix streams: native

    def _make_socket_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        **context: Any,
    ) -> asyncio.Transport:
        self._ensure_fd_no_transport(sock)
        if _is_native(sock):
            return _core.make_transport(self, sock, sock.family, protocol, waiter, extra, server, **context)
        return _selector_events._SelectorSocketTransport(self, sock, protocol, waiter, extra, server, **context)

    def _make_datagram_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.BaseTransport:
        self._ensure_fd_no_transport(sock)
        if _takes_datagrams(sock):
            return _core.make_datagram_transport(self, sock, sock.family, sock.type, protocol, address, waiter, extra)
        return _selector_events._SelectorDatagramTransport(self, sock, protocol, address, waiter, extra)

    def _make_ssl_transport(
        self,
        rawsock: socket.socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: Any,
        waiter: asyncio.Future[None] | None = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        call_connection_made: bool = True,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        **context: Any,
    ) -> asyncio.Transport:
        self._ensure_fd_no_transport(rawsock)
        ssl_protocol = _tls.protocol_class()(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            call_connection_made,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        self._make_socket_transport(rawsock, ssl_protocol, extra=extra, server=server, **context)
        return ssl_protocol._app_transport

    def _start_serving(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: socket.socket,
        sslcontext: Any = None,
        server: Any = None,
        backlog: int = 100,
        *timeouts: Any,
        **more: Any,
    ) -> None:
        if not _is_native(sock) or self._overrides("create_task", "_make_socket_transport", "_make_ssl_transport"):
            # asyncio's own accepting calls what a subclass has replaced.
            _Selector._start_serving(self, protocol_factory, sock, sslcontext, server, backlog, *timeouts, **more)
            return
        accept_tls = None
        if sslcontext is not None:
            accept_tls = functools.partial(self._accept_tls, protocol_factory, sslcontext, server, timeouts, more)
        _core.listen(self, sock, protocol_factory, server, backlog, accept_tls, more.get("context"))

    def _overrides(self, *names: str) -> bool:
        """Whether a subclass or the instance has a method of its own in place of one of Loop's."""
        kind = type(self)
        return any(name in vars(self) or getattr(kind, name) is not getattr(Loop, name) for name in names)

    def _accept_tls(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sslcontext: Any,
        server: Any,
        timeouts: tuple[Any, ...],
        more: dict[str, Any],
        conn: socket.socket,
        address: Any,
    ) -> None:
        """Make the connection of a TLS client as asyncio does, in a task that waits for the handshake.

        Called in a copy of the server's context.
        """
        task: dict[str, Any] = {}
        if more.get("context") is not None:
            # From 3.15 on the task and the transport have one context, and no other connection has it.
            task = {"context": contextvars.copy_context()}
            more = more | task
        extra = {"peername": address}
        accept = self._accept_connection2(protocol_factory, conn, extra, sslcontext, server, *timeouts, **more)
        self.create_task(accept, **task)

    def _stop_serving(self, sock: socket.socket) -> None:
        _core.stop_listening(self, sock)
        path = sock.getsockname() if sock in self._unix_server_sockets else None
        _Selector._stop_serving(self, sock)
        if path is not None:
            # The path is ours to remove only while it is still the socket that we bound.
            inode = self._unix_server_sockets.pop(sock)
            try:
                _core.unlink_socket(path, inode)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.error("Unable to clean up listening UNIX socket %r: %r", path, error)

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        self._ensure_fd_no_native_transport(fd)
        _Selector._ensure_fd_no_transport(self, fd)

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int | None) -> int:
        if not isinstance(transp, _NATIVE_TRANSPORTS):
            return await _Selector._sendfile_native(self, transp, file, offset, count)
        resume_reading = transp.is_reading()
        transp.pause_reading()
        await transp._make_empty_waiter()
        transp._lend_descriptor(True)
        try:
            sock: Any = transp._sock
            return await self.sock_sendfile(sock, file, offset, count, fallback=False)
        finally:
            transp._lend_descriptor(False)
            transp._reset_empty_waiter()
            if resume_reading:
                transp.resume_reading()

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> asyncio.Transport | None:
        """Upgrade a connection to TLS; see asyncio.loop.start_tls.

        What a StreamReader has taken of the client's handshake is given to TLS, also on the versions of Python whose
        own start_tls loses it (gh-142352).
        """
        if server_side and isinstance(transport, _NATIVE_TRANSPORTS) and isinstance(sslcontext, ssl.SSLContext):
            reader = getattr(protocol, "_stream_reader", None)
            taken = getattr(reader, "_buffer", None)
            if isinstance(protocol, asyncio.StreamReaderProtocol) and taken:
                transport.pause_reading()
                transport._unread(bytes(taken))
                taken.clear()
        return await asyncio.BaseEventLoop.start_tls(
            self,
            transport,
            protocol,
            sslcontext,
            server_side=server_side,
            server_hostname=server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )

    # -- pipes: native

    def _make_read_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.ReadTransport:
        return _core.make_read_pipe_transport(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.WriteTransport:
        return _core.make_write_pipe_transport(self, pipe, protocol, waiter, extra)

    # -- subprocesses: spawned by the standard library, waited for natively

    _make_subprocess_transport = _process.make_subprocess_transport
    if hasattr(_Unix, "_child_watcher_callback"):  # for a program's own child watcher
        _child_watcher_callback = _Unix._child_watcher_callback

    # -- names

    if not TYPE_CHECKING:  # for checkers they are AbstractEventLoop's
        getaddrinfo = _dns.getaddrinfo
        getnameinfo = _dns.getnameinfo

    # -- signals: asyncio's checks and texts, our recording

    @property
    def _csock(self) -> _WakeupEnd:
        return _WakeupEnd(self)

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Call back in the loop when a signal arrives; see asyncio.loop.add_signal_handler.

        Every kind of signal that arrived is handled, however many come at once.
        """
        with _users_wakeup_fd_kept():
            # asyncio's method gives the wakeup descriptor to the loop: a signal that comes before our handler is in
            # force is seen by its byte.
            self._hears_signals = True
            try:
                _Unix.add_signal_handler(self, sig, callback, *args)
                signal.signal(sig, functools.partial(_record, weakref.ref(self)))
                signal.siginterrupt(sig, False)
            finally:
                self._hears_signals = False
        self._signals_since[sig] = time.monotonic()

    def remove_signal_handler(self, sig: int) -> bool:
        """Restore Python's own handling of a signal; whether there was a handler of this loop."""
        with _users_wakeup_fd_kept():
            return _Unix.remove_signal_handler(self, sig)

    def _debug_handles(self) -> list[Any]:
        rows: list[Any] = super()._debug_handles()
        now = time.monotonic()
        for sig, handle in self._signal_handlers.items():
            rows.append(
                {
                    "kind": "signal",
                    "fd": None,
                    "peer": None,
                    "state": "open",
                    "waiting": 0,
                    "age": now - self._signals_since.get(sig, now),
                    "creator": getattr(handle, "_source_traceback", None),
                    "signal": int(sig),
                }
            )
        return rows

    def _signal_seen(self, sig: int) -> None:
        """A signal came through the wakeup descriptor, by which asyncio's loop goes.

        What its handler has told already is over. What is left is the loop's none the less: where a program has put
        another handler in the place of ours, where several of a kind came at once, where ours was not yet in force.
        """
        told = self._signals_told.get(sig, 0)
        if told:
            self._signals_told[sig] = told - 1
        elif sig in self._signal_handlers:
            self._handle_signal(sig)

    _handle_signal = _Unix._handle_signal
    _check_signal = _Unix._check_signal

    # -- borrowed: run once a connection, by asyncio's own code

    @property
    def _selector(self) -> _Watches | None:
        return None if self.is_closed() else _Watches(self)

    _accept_connection = _Selector._accept_connection
    _accept_connection2 = _Selector._accept_connection2

    if not TYPE_CHECKING:  # for checkers the public ones are AbstractEventLoop's
        create_unix_connection = _Unix.create_unix_connection
        create_unix_server = _Unix.create_unix_server


_native.put_functions(Loop, _core.Loop)
_core.remember_hooks(Loop)
