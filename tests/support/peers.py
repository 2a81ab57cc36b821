"""Plain sockets and pipes, and peers: the other end of a connection, driven by a thread that blocks, no loop
knowing it.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import random
import select
import socket
import struct

from support.drive import LIMIT

KB, MB = 1024, 1024 * 1024


@functools.lru_cache(32)
def pattern(size):
    """`size` bytes in which every place looks different."""
    return random.Random(size).randbytes(size)


def same(got, want):
    """Equal bytes, without printing megabytes."""
    if got == want:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), min(len(got), len(want)))
    raise AssertionError(
        f"got {len(got)} bytes, want {len(want)}; they differ from byte {at}: {bytes(got[at : at + 20])!r}"
    )


def reset(sock):
    """Close so that the other end gets a reset instead of an end of file (TCP)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def fill(sock):
    """Write to a non-blocking socket until it takes no more; how much it took."""
    total = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            total += sock.send(bytes(64 * KB))
    return total


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Peer:
    """A blocking socket and the thread that uses it. The coroutines let the loop run; `now` and `sock` are for the
    caller's thread.
    """

    def __init__(self, sock, thread):
        self.sock, self._thread = sock, thread
        sock.settimeout(LIMIT)

    def start(self, fn, *args):
        """Have the thread call fn(*args); the concurrent future of it."""
        return self._thread.submit(fn, *args)

    async def call(self, fn, *args):
        return await asyncio.wrap_future(self.start(fn, *args))

    async def send(self, data):
        await self.call(self.sock.sendall, data)

    async def recv(self, count):
        """Exactly `count` bytes; fewer only if the end of file comes first."""
        return await self.call(self._recv, count)

    async def recv_all(self):
        """Everything up to the end of file."""
        return await self.call(self._recv, None)

    def _recv(self, count):
        got = bytearray()
        while count is None or len(got) < count:
            chunk = self.sock.recv(256 * KB if count is None else min(256 * KB, count - len(got)))
            if not chunk:
                break
            got += chunk
        return bytes(got)

    def now(self, count=None, wait=0.0):
        """What has come already, without the loop getting a turn: up to `count` bytes, b"" for end of file, None
        for nothing.
        """
        got = b""
        while count is None or len(got) < count:
            if not select.select([self.sock], [], [], wait)[0]:
                return got or None
            chunk = self.sock.recv(64 * KB if count is None else count - len(got))
            if not chunk:
                return got
            got += chunk
        return got

    async def end(self):
        """The end of file, or the reset, comes; what came before it."""
        with contextlib.suppress(ConnectionResetError):
            return await self.recv_all()
        return None

    def close(self):
        self.sock.close()

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        reset(self.sock)


class Closing(contextlib.ExitStack):
    """Makes things and closes them at the end."""

    def own(self, sock):
        self.callback(_close, sock)
        return sock

    def pair(self, *args, tcp=False, blocking=False):
        """Two connected sockets, non-blocking unless told otherwise."""
        if tcp:
            listener = self.listener()
            a = self.own(socket.create_connection(listener.getsockname(), timeout=LIMIT))
            listener.setblocking(True)
            b = self.own(listener.accept()[0])
            listener.close()
            a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            b.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            a, b = map(self.own, socket.socketpair(*args))
        for sock in (a, b):
            sock.setblocking(blocking)
        return a, b

    def listener(self, family=socket.AF_INET, backlog=100):
        """A listening, non-blocking TCP socket on loopback."""
        sock = self.own(socket.socket(family, socket.SOCK_STREAM))
        sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        sock.listen(backlog)
        sock.setblocking(False)
        return sock

    def pipe(self):
        """The read and the write end of a pipe, as unbuffered file objects (blocking)."""
        r, w = os.pipe()
        return self.own(open(r, "rb", buffering=0)), self.own(open(w, "wb", buffering=0))

    def peer(self, sock):
        """A Peer of this socket."""
        thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="peer")
        self.callback(thread.shutdown)
        self.own(sock)
        return Peer(sock, thread)

    def dial(self, port, host="127.0.0.1"):
        """A peer that has connected to a port of loopback, the kernel's backlog answering: no loop needed."""
        return self.peer(socket.create_connection((host, port), timeout=LIMIT))

    def dead_port(self):
        """A port where nobody listens: bound, so that nobody else gets it."""
        sock = self.own(socket.socket())
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _close(sock):
    with contextlib.suppress(OSError):
        sock.close()
