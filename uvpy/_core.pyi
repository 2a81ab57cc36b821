# The native half of uvpy: everything that csrc/ puts into `uvpy._core`. What is public of it reaches users through
# `uvpy.Loop` and through the handles and transports that a loop makes; the docstrings here are about those. Names
# with an underscore are the seam between the native code, `uvpy/_loop.py` and asyncio's own code.
# ruff: noqa: PYI021 - the extension's own docstrings are one line each: units and errors are told here
import asyncio
import socket
import sys
from asyncio.transports import _FlowControlMixin
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import Context
from enum import Enum
from traceback import StackSummary
from types import FunctionType, MethodDescriptorType
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    NotRequired,
    TypeAlias,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    final,
    type_check_only,
)

from _typeshed import FileDescriptorLike
from typing_extensions import CapsuleType, disjoint_base

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

if sys.version_info >= (3, 12):
    _CoroutineLike: TypeAlias = Coroutine[Any, Any, _T]
else:
    _CoroutineLike: TypeAlias = Generator[Any, None, _T] | Coroutine[Any, Any, _T]

_Chunk: TypeAlias = bytes | bytearray | memoryview[Any]
# AF_INET: (host, port). AF_INET6: (host, port, flowinfo, scope_id). AF_UNIX: a path, bytes for an abstract name.
_Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | str | bytes | None

__version__: Final[str]
"""The version of uvpy, such as "0.1.0"."""
libuv_version: Final[str]
"""The version of the libuv that is loaded, such as "1.52.1"."""
newest_tested_minor: Final[int]
"""The newest CPython 3.x that this source has been tested on, as x."""
build: Final[dict[str, str]]
"""How the extension was built: "compiler", "libuv_source" ("system" or "bundled") and "buildtype"."""

def libuv_loop_ptr(loop: Loop) -> CapsuleType:
    """The `uv_loop_t*` of a loop and a table of libuv's functions, in a capsule for other extensions.

    What they may do with it stands in uvpy.h, in the folder that `uvpy.get_include()` gives. The capsule keeps the loop
    alive. From then on each iteration of the loop looks for events of libuv. RuntimeError for a closed loop and, in a
    forked child, for the parent's.
    """

@type_check_only
class _CoreStats(TypedDict):
    """What `Loop._core_stats()` gives; all counted from the making of the loop."""

    turns: int
    """Iterations of the loop."""
    polls: int
    """Iterations that looked for events of descriptors."""
    polls_skipped: int
    """Iterations that did not, because there was work to do and nothing to look for."""
    gil_released: int
    """Polls during which the GIL was given up, because they could block."""
    gil_contended: int
    """Times that getting the GIL back took most of a switch interval."""
    gil_wait_ns: int
    """Nanoseconds spent in getting the GIL back."""
    datagram_calls: int
    """System calls that sent several of the datagrams that waited, or could have."""
    datagrams_sent: int
    """The datagrams that they sent."""

@type_check_only
class _OpenHandle(TypedDict):
    """A row of `Loop._debug_handles()`."""

    kind: str
    """A transport ("tcp", "unix", "udp", "unix datagram", "read pipe", "write pipe"), "listener", "process" (a child),
    "reader", "writer", "reader+writer", "timer", "signal", or "guest" with libuv's word for it: a handle that another
    extension has on the loop's libuv."""
    fd: int | None
    """None for what has no descriptor."""
    peer: Any
    """The other end's address, where there is one."""
    state: str
    """Such as "open", "closing", "paused", "waiting"; of children "running" or "exited"."""
    waiting: int
    """Bytes that were written and the kernel has not taken."""
    age: float | None
    """Seconds since it was opened. None for timers and guests."""
    creator: StackSummary | None
    """The stack that opened it, where that was in debug mode."""
    due: NotRequired[float]
    """Of timers: seconds until then."""
    pid: NotRequired[int]
    """Of children: the process."""
    signal: NotRequired[int]
    """Of signal handlers: the number."""

@disjoint_base
class Loop:
    """The native half of `uvpy.Loop`, which adds asyncio.BaseEventLoop to it and is what users make.

    Every method does, takes and raises what asyncio documents for it. Unless said otherwise a method belongs to the
    thread that runs the loop, and raises RuntimeError on a closed loop.
    """

    gather_writes: bool
    """Whether, under load, the writes of one iteration are gathered and sent by one system call at its end.

    True at first. False sends each write when it is made, as asyncio does, also what is gathered already.
    """

    # What BaseEventLoop's code keeps in the instance.
    _closed: bool
    _debug: bool
    _stopping: bool
    _thread_id: int | None
    _current_handle: asyncio.Handle | None
    _task_factory: Any
    _ready: Sequence[asyncio.Handle]
    """A new list of the handles that are due. Changing or setting it changes nothing."""
    _scheduled: Sequence[asyncio.TimerHandle]
    """A new list of the timers that wait, without the cancelled ones. Changing or setting it changes nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a loop that is open and does not run.

        TypeError for any argument, whatever the signature says; OSError where descriptors run out.
        """

    # -- running

    def run_forever(self) -> None:
        """Run until stop() is called.

        RuntimeError when this loop or another one already runs in this thread, and in a forked child, which cannot
        run its parent's loop.
        """

    def stop(self) -> None:
        """Stop after the current iteration; on a loop that does not run, after the first one of the next run."""

    def is_running(self) -> bool:
        """Whether the loop runs."""

    def is_closed(self) -> bool:
        """Whether close() was called."""

    def get_debug(self) -> bool:
        """Whether debug mode is on."""

    def _run_once(self) -> None:
        """Run one iteration; between the two below. RuntimeError from inside a callback of this loop."""

    def _run_forever_setup(self) -> None: ...
    def _run_forever_cleanup(self) -> None: ...
    def _shutdown(self) -> None:
        """Drop what is scheduled, close what is open, call no protocol; the last step of close()."""

    # -- callbacks and timers

    def time(self) -> float:
        """The loop's clock in seconds: time.monotonic(). An override by a subclass or on the instance is honoured."""

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next iteration, in `context` or a copy of the current one.

        In debug mode also RuntimeError in a thread that does not run the loop, TypeError for a coroutine or what
        cannot be called.
        """

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """call_soon() for every thread; wakes the loop. From Python 3.14 on the handle is a ThreadSafeHandle."""

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback after `delay` seconds, never early. TypeError for None, ValueError for NaN."""

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at `when`, in seconds of time(), never early. TypeError for None, ValueError for NaN.

        Timers of equal deadlines run in the order in which they were made.
        """

    def _call_soon(self, callback: Callable[..., object], args: Iterable[Any], context: Context | None) -> Handle: ...
    def _add_callback(self, handle: asyncio.Handle, /) -> None: ...
    def _add_callback_signalsafe(self, handle: asyncio.Handle, /) -> None: ...
    def _run_foreign_handle(self, handle: asyncio.Handle, /) -> None: ...
    def _write_to_self(self) -> None:
        """Wake the loop if it is parked; from any thread."""

    # -- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        """An asyncio.Future of this loop."""

    if sys.version_info >= (3, 13):
        def create_task(
            self,
            coro: _CoroutineLike[_T],
            *,
            name: object = None,
            context: Context | None = None,
            eager_start: bool | None = None,
        ) -> asyncio.Task[_T]:
            """Schedule a coroutine as an asyncio.Task, or what the task factory makes of it."""
    else:
        def create_task(
            self, coro: _CoroutineLike[_T], *, name: object = None, context: Context | None = None
        ) -> asyncio.Task[_T]:
            """Schedule a coroutine as an asyncio.Task, or what the task factory makes of it."""

    # -- descriptors

    def add_reader(self, fd: FileDescriptorLike, callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        """Call back in every iteration in which `fd` is readable.

        ValueError for what is no descriptor, RuntimeError for one that belongs to an open transport, OSError as the
        kernel has it (PermissionError for a regular file, FileNotFoundError or OSError EBADF for a closed one).
        """

    def add_writer(self, fd: FileDescriptorLike, callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        """Call back in every iteration in which `fd` is writable; raises what add_reader() raises."""

    def remove_reader(self, fd: FileDescriptorLike) -> bool:
        """Watch `fd` for reading no more; whether it was watched. False on a closed loop."""

    def remove_writer(self, fd: FileDescriptorLike) -> bool:
        """Watch `fd` for writing no more; whether it was watched. False on a closed loop."""

    # The same for transports: whose descriptor it is, is not asked.
    def _add_reader(
        self,
        fd: FileDescriptorLike,
        callback: Callable[[*_Ts], Any],
        *args: *_Ts,
        context: Context | None = None,
    ) -> Handle: ...
    def _add_writer(
        self,
        fd: FileDescriptorLike,
        callback: Callable[[*_Ts], Any],
        *args: *_Ts,
        context: Context | None = None,
    ) -> Handle: ...
    def _remove_reader(self, fd: FileDescriptorLike, /) -> bool: ...
    def _remove_writer(self, fd: FileDescriptorLike, /) -> bool: ...
    def _ensure_fd_no_native_transport(self, fd: FileDescriptorLike, /) -> None:
        """RuntimeError when `fd` belongs to an open native transport."""

    def _watched(self, fd: FileDescriptorLike, /) -> tuple[int, Handle | None, Handle | None] | None:
        """(events as in `selectors`, reader, writer) of a descriptor that is watched."""

    def _wakeup_fd(self) -> int:
        """The descriptor for signal.set_wakeup_fd()."""

    # -- the GIL, and what can be seen from outside

    def _set_gil_policy(self, name: str, /) -> None:
        """Either "adaptive" or "plain"; ValueError for anything else."""

    def _get_gil_policy(self) -> Literal["adaptive", "plain"]: ...
    def _core_stats(self) -> _CoreStats:
        """Counters for tests and benchmarks."""

    def _debug_handles(self) -> list[_OpenHandle]:
        """One row for all that is open: transports, listeners, watched descriptors, timers, signal handlers, guests."""

# Derived from asyncio's classes for the checker only: at run time the types are our own, and `__class__` gives
# asyncio's, so that isinstance() holds.

@type_check_only
class _Handle(asyncio.Handle):
    """What the three kinds of handles share."""

    @property
    def _callback(self) -> Callable[..., object] | None: ...
    @property
    def _loop(self) -> Loop: ...
    @property
    def _context(self) -> Context | None: ...
    @property
    def _source_traceback(self) -> StackSummary | None: ...
    @property
    def _repr(self) -> str | None: ...
    def cancel(self) -> None:
        """Cancel the callback. Calling it again, or after the run, does nothing."""

    def cancelled(self) -> bool:
        """Whether the callback was cancelled."""

    def get_context(self) -> Context:
        """The context that the callback runs in. On every version of Python; asyncio has it from 3.12 on."""

    def _run(self) -> None: ...
    def _repr_info(self) -> list[str]: ...
    def __copy__(self) -> asyncio.Handle:
        """A handle of asyncio's own type with the same attributes, which is not scheduled."""

@final
class Handle(_Handle):
    """A callback scheduled on a uvpy loop: an asyncio.Handle to isinstance(). Cannot be made by hand."""

@final
class Timer(_Handle, asyncio.TimerHandle):
    """A timer of a uvpy loop: an asyncio.TimerHandle to isinstance(). Cannot be made by hand."""

    @property
    def _when(self) -> float: ...
    @property
    def _scheduled(self) -> bool:
        """Whether it waits for its deadline."""

    def __hash__(self) -> int: ...
    def __lt__(self, other: asyncio.TimerHandle, /) -> bool: ...
    def __le__(self, other: asyncio.TimerHandle, /) -> bool: ...
    def __gt__(self, other: asyncio.TimerHandle, /) -> bool: ...
    def __ge__(self, other: asyncio.TimerHandle, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def cancel(self) -> None:
        """Cancel the timer, which frees its memory at once. Calling it again, or after the run, does nothing."""

    def when(self) -> float:
        """The deadline in seconds of loop.time(), the very object that was given to call_at()."""

@final
@type_check_only
class ThreadSafeHandle(_Handle):
    """What call_soon_threadsafe() gives from Python 3.14 on. The module keeps the type to itself."""

    def cancel(self) -> None:
        """Cancel the callback; in a thread other than the loop's, wait for it where it runs just now."""

    def cancelled(self) -> bool:
        """Whether the callback was cancelled; waits as cancel() does."""

@type_check_only
class _Transport(_FlowControlMixin):
    """What every transport has: asyncio.BaseTransport, pausing of both directions, what asyncio asks for."""

    @property
    def _loop(self) -> Loop | None: ...
    @property
    def _server(self) -> Any: ...
    @property
    def _sock(self) -> socket.socket | None: ...
    @property
    def _sock_fd(self) -> int: ...
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None: ...
    @property
    def _conn_lost(self) -> int:
        """Above 0 once connection_lost() is on its way."""

    @property
    def _closing(self) -> bool: ...
    @property
    def _paused(self) -> bool: ...
    @property
    def _protocol_connected(self) -> Literal[True]: ...
    _protocol_paused: bool
    _high_water: int
    _low_water: int
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known about the connection, `default` for what is not.

        "socket" is an asyncio.trsock.TransportSocket; "sockname" and "peername" are addresses, taken when the
        connection was made.
        """

    def is_closing(self) -> bool:
        """Whether the transport is closing or closed."""

    def get_protocol(self) -> asyncio.BaseProtocol: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...
    def close(self) -> None:
        """Send what waits to be sent, then close; connection_lost(None) follows in a later iteration."""

    def abort(self) -> None:
        """Close at once and drop what waits to be sent; connection_lost(None) follows in a later iteration."""

    def pause_reading(self) -> None:
        """Deliver no data until resume_reading(). Does nothing when paused already or closing."""

    def resume_reading(self) -> None:
        """Deliver data again. Does nothing when not paused or closing."""

    def is_reading(self) -> bool:
        """Whether data is delivered."""

    def get_write_buffer_size(self) -> int:
        """The bytes that were written and the kernel has not taken."""

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The (low, high) marks in bytes."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks, in bytes, at which the protocol is paused and resumed; ValueError unless high >= low >= 0."""

    def _force_close(self, exc: BaseException | None, /) -> None: ...
    def _fatal_error(self, exc: BaseException | None, message: str = ...) -> None: ...
    def _add_reader(self, fd: FileDescriptorLike, callback: Callable[..., object], /, *args: Any) -> None: ...
    def _start_reading(self) -> None: ...
    def _settle_reading(self) -> None: ...
    def _call_connection_lost(self, exc: BaseException | None, /) -> None: ...

@type_check_only
class _StreamTransport(_Transport):
    """What the transports of connected stream sockets share: asyncio.Transport, and what its code asks for."""

    _start_tls_compatible: ClassVar[bool]
    _sendfile_compatible: ClassVar[Enum]
    def write(self, data: _Chunk) -> None:
        """Send bytes, now or as soon as the kernel takes them; what is not bytes is copied.

        TypeError for anything but bytes, bytearray and memoryview, RuntimeError after write_eof(). On a connection
        that is lost the data is dropped.
        """

    def writelines(self, list_of_data: Iterable[_Chunk]) -> None:
        """Send several chunks with one system call; see write()."""

    def write_eof(self) -> None:
        """Close the write side when everything is sent."""

    def can_write_eof(self) -> bool:
        """True."""

    def _close_deferred(self) -> None: ...
    def _flush(self) -> None: ...
    def _drained(self) -> None: ...
    def _lend_descriptor(self, lent: bool, /) -> None:
        """Whether the loop's watchers may have the descriptor of this transport, for sendfile."""

    def _unread(self, data: bytes, /) -> None:
        """Deliver these bytes, already taken by a reader, before what comes next."""

    def _deliver_unread(self) -> None: ...
    def _make_empty_waiter(self) -> asyncio.Future[None]:
        """A future that is done when everything is sent; RuntimeError where there is one already."""

    def _reset_empty_waiter(self) -> None: ...

@final
class TCPTransport(_StreamTransport):
    """A TCP connection of a uvpy loop; see asyncio.Transport. Cannot be made by hand."""

@final
class UnixTransport(_StreamTransport):
    """A Unix stream connection of a uvpy loop; see asyncio.Transport. Cannot be made by hand."""

@final
class UDPTransport(_Transport, asyncio.DatagramTransport):
    """Datagrams on a uvpy loop; see asyncio.DatagramTransport. Cannot be made by hand.

    It is one from 3.12 on, as asyncio's own.
    """

    max_size: ClassVar[int]
    @property
    def _address(self) -> Any: ...
    @property
    def _buffer(self) -> list[tuple[bytes, Any]]: ...
    @property
    def _buffer_size(self) -> int: ...
    def sendto(self, data: _Chunk, addr: Any = None) -> None:
        """Send a datagram to addr, or to the peer; now or as soon as the kernel takes it.

        TypeError for anything but bytes, bytearray and memoryview, ValueError for another address than the peer's.
        What the kernel says against it is the protocol's: error_received().
        """

    def _read_ready(self) -> None: ...
    def _sendto_ready(self) -> None: ...

@type_check_only
class _PipeTransport(asyncio.BaseTransport):
    """What both ends of a pipe share."""

    _pipe: Any
    @property
    def _loop(self) -> Loop | None: ...
    @property
    def _fileno(self) -> int: ...
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None: ...
    @property
    def _closing(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known about the pipe, `default` for what is not: "pipe" is the file object."""

    def is_closing(self) -> bool:
        """Whether the transport is closing or closed."""

    def get_protocol(self) -> asyncio.BaseProtocol: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...
    def _fatal_error(self, exc: BaseException | None, message: str = ...) -> None: ...
    def _close(self, exc: BaseException | None, /) -> None: ...
    def _call_connection_lost(self, exc: BaseException | None, /) -> None: ...

@final
class ReadPipeTransport(_PipeTransport, asyncio.ReadTransport):
    """The reading end of a pipe of a uvpy loop; see asyncio.ReadTransport. Cannot be made by hand."""

    max_size: ClassVar[int]
    @property
    def _paused(self) -> bool: ...
    def close(self) -> None:
        """Close; connection_lost(None) follows in a later iteration, and then the file is closed."""

    def pause_reading(self) -> None:
        """Deliver no data until resume_reading(). Does nothing when paused already or closing."""

    def resume_reading(self) -> None:
        """Deliver data again. Does nothing when not paused or closing."""

    def is_reading(self) -> bool:
        """Whether data is delivered."""

    def _add_reader(self, fd: FileDescriptorLike, callback: Callable[..., object]) -> None: ...
    def _read_ready(self) -> None: ...

@final
class WritePipeTransport(_PipeTransport, _FlowControlMixin):
    """The writing end of a pipe of a uvpy loop; see asyncio.WriteTransport. Cannot be made by hand."""

    @property
    def _conn_lost(self) -> int:
        """How many writes were dropped, one that failed counted."""

    _protocol_paused: bool
    _high_water: int
    _low_water: int
    @property
    def _buffer(self) -> bytearray:
        """A copy of the bytes that wait."""

    def close(self) -> None:
        """Send what waits to be sent, then close; connection_lost(None) follows, and then the file is closed."""

    def abort(self) -> None:
        """Close at once and drop what waits to be sent; connection_lost(None) follows in a later iteration."""

    def write(self, data: _Chunk) -> None:
        """Send bytes, now or as soon as the pipe takes them; what is not bytes is copied.

        AssertionError for anything but bytes, bytearray and memoryview. On a pipe that is closing or lost the data is
        dropped.
        """

    def _start_reading(self) -> None: ...
    def _read_ready(self) -> None:
        """The reader has gone."""

    def _write_ready(self) -> None: ...

@final
@type_check_only
class Listener:
    """A listening socket. The module keeps the type to itself."""

    def _resume_accepting(self) -> None: ...

@final
@type_check_only
class Process:
    """A child of this process, to its end. The module keeps the type to itself."""

    @property
    def pid(self) -> int: ...
    def needs_thread(self) -> bool:
        """Whether a thread must call wait_for_exit() and then have _noticed() called, for want of a pidfd."""

    def wait_for_exit(self) -> None:
        """Block until the child has exited, and leave it a zombie."""

    def hand_over(self) -> bool:
        """Give the pidfd up for a thread; whether there was one to give up."""

    def poll(self) -> None:
        """Reap the child if it has exited; the transport is told later, by the loop."""

    def send_signal(self, number: int, /) -> bool:
        """Signal the child; nothing when it has gone.

        False, with nothing done, in a forked copy of the program that has it.
        """

    def _noticed(self) -> None: ...
    def _exited(self) -> None: ...

# -- what the coroutines of uvpy/_sock.py are made of: each function tries, and gives the result or a SockCall

@final
class SockCall:
    """A call of sock_recv() or a sibling that waits for its socket; the loop calls it when that is ready."""

    @property
    def future(self) -> asyncio.Future[Any]:
        """What the coroutine awaits."""

    def release(self) -> Any:
        """Wait no more. An accepted connection that nobody gets is given back with its address; otherwise None."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

def sock_check(loop: Any, sock: socket.socket, /) -> None:
    """TypeError for a TLS socket; in debug mode ValueError for one that blocks. The others begin with the same."""

def sock_recv(loop: Any, sock: socket.socket, n: int, /) -> bytes | SockCall: ...
def sock_recv_into(loop: Any, sock: socket.socket, buf: Any, /) -> int | SockCall: ...
def sock_recvfrom(loop: Any, sock: socket.socket, bufsize: int, /) -> Any: ...
def sock_recvfrom_into(loop: Any, sock: socket.socket, buf: Any, nbytes: int, /) -> Any: ...
def sock_accept(loop: Any, sock: socket.socket, /) -> tuple[socket.socket, Any] | SockCall: ...
def sock_sendall(loop: Any, sock: socket.socket, data: Any, /) -> SockCall | None: ...
def sock_sendto(loop: Any, sock: socket.socket, data: Any, address: Any, /) -> int | SockCall: ...
def sock_connect(loop: Any, sock: socket.socket, address: Any, /) -> SockCall | None: ...
def sock_sendfile(
    loop: Any, sock: socket.socket, file: Any, fileno: int, offset: int, count: int | None, seeks_always: bool, /
) -> int | SockCall:
    """Send a file from `offset`, `count` bytes or all. SendfileNotAvailableError where the system cannot."""

# -- what uvpy.Loop asks of the transports, which the native Loop does not know

def numeric_getaddrinfo(
    loop: Loop, host: Any, port: Any, family: int, kind: int, proto: int, flags: int, /
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]] | None:
    """What socket.getaddrinfo() says of a plain numeric address and port; None for what it has to be asked about."""

def make_transport(
    loop: Loop,
    sock: socket.socket,
    family: int,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[None] | None = None,
    extra: dict[str, Any] | None = None,
    server: Any = None,
    context: Context | None = None,
    **ignored: Any,
) -> TCPTransport | UnixTransport:
    """A transport that takes the descriptor of a connected socket over.

    ValueError for a family without a native transport, OSError; after an error the descriptor is still the socket's.
    """

def make_datagram_transport(
    loop: Loop,
    sock: socket.socket,
    family: int,
    kind: int,
    protocol: asyncio.BaseProtocol,
    address: Any = None,
    waiter: asyncio.Future[None] | None = None,
    extra: dict[str, Any] | None = None,
) -> UDPTransport:
    """A transport that sends and receives by a datagram socket, and closes it; to `address` only where one is given.

    ValueError for a family without a native transport, OSError; after an error the socket is still its owner's.
    """

def listen(
    loop: Loop,
    sock: socket.socket,
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    server: Any,
    backlog: int,
    accept_tls: Callable[[socket.socket, _Address], object] | None = None,
    context: Context | None = None,
) -> None:
    """Accept on a listening socket, at most `backlog` connections an iteration; in the place of who accepts there.

    Where `accept_tls` is given it gets each socket with the client's address, in place of a transport.
    """

def stop_listening(loop: Loop, sock: socket.socket) -> None:
    """Accept on a descriptor no more; nothing where nobody does."""

def make_read_pipe_transport(
    loop: Loop,
    pipe: Any,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[None] | None = None,
    extra: dict[str, Any] | None = None,
) -> ReadPipeTransport:
    """A transport that reads from a file object's descriptor. ValueError where that is no pipe, socket or device."""

def make_write_pipe_transport(
    loop: Loop,
    pipe: Any,
    protocol: asyncio.BaseProtocol,
    waiter: asyncio.Future[None] | None = None,
    extra: dict[str, Any] | None = None,
) -> WritePipeTransport:
    """A transport that writes to a file object's descriptor. ValueError where that is no pipe, socket or device."""

def watch_child(loop: Loop, transport: Any, pid: int, by_thread: bool = False) -> Process:
    """Reap a child when it has exited, and call `transport._process_exited(returncode)` then."""

def children(loop: Loop) -> list[Process]:
    """The children that a loop watches."""

def native_function(function: FunctionType, method: MethodDescriptorType) -> FunctionType:
    """Make a function that is a closure over a method alone call it without running its body; for uvpy._native.

    Gives what a class is to have in its place: the function, or, before Python 3.12, what stands for it. TypeError.
    """

def remember_hooks(kind: type[Loop], /) -> None:
    """Take the methods of a class as those that nobody has overridden."""

def unlink_socket(path: str | bytes, inode: int) -> None:
    """Remove a listening socket's path if it is still the file of that number; OSError if that fails."""

def before_fork() -> None:
    """For os.register_at_fork(before=): send what was gathered."""

def after_fork_in_child() -> None:
    """For os.register_at_fork(after_in_child=): the loops there are become the parent's, to be left alone."""
