"""Pipes, FIFOs and terminals for the tests of pipe transports, and files that count how often they are closed."""

import asyncio
import io
import os
import re
import socket
import termios

from support.drive import eventually
from support.peers import KB, pattern
from support.protocols import Recorder


class Counting(io.FileIO):
    """A file that notes at each close() whether its descriptor is open."""

    def __init__(self, *args, **kwargs):
        self.closes = []
        super().__init__(*args, **kwargs)

    def close(self):
        if not self.closed:
            try:
                os.fstat(self.fileno())
                self.closes.append("open")
            except OSError:
                self.closes.append("closed already")
        super().close()


def pipe(sockets):
    """Both ends of a pipe as Counting files, blocking."""
    r, w = os.pipe()
    return sockets.own(Counting(r, "rb")), sockets.own(Counting(w, "wb"))


def fifo(sockets, folder):
    """Both ends of a FIFO of the file system."""
    path = folder / "fifo"
    os.mkfifo(path)
    r = sockets.own(Counting(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb"))
    os.set_blocking(r.fileno(), True)
    return r, sockets.own(Counting(path, "wb"))


def pair(sockets):
    """Two ends of a Unix socket pair, blocking."""
    return sockets.pair(blocking=True)


ENDS = ("pipe", "fifo", "socket")


def ends(sockets, what, folder):
    """(reading, writing) of a kind in ENDS."""
    if what == "pipe":
        return pipe(sockets)
    return fifo(sockets, folder) if what == "fifo" else pair(sockets)


def put(end, data):
    if isinstance(end, socket.socket):
        end.sendall(data)
    else:
        end.write(data)


def take(end, count=1 << 20):
    """What has come, without waiting; None for nothing."""
    fd = end.fileno()
    was = os.get_blocking(fd)
    os.set_blocking(fd, False)
    try:
        return os.read(fd, count)
    except BlockingIOError:
        return None
    finally:
        os.set_blocking(fd, was)


def terminal(sockets):
    """(master, slave): a raw pseudo terminal as Counting files, the slave for reading and writing, blocking."""
    master, slave = os.openpty()
    mode = termios.tcgetattr(slave)
    mode[0] = mode[1] = 0
    mode[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    return sockets.own(Counting(master, "r+b")), sockets.own(Counting(slave, "r+b"))


async def reading(end, factory=Recorder):
    return await asyncio.get_running_loop().connect_read_pipe(factory, end)


async def writing(end, factory=Recorder):
    return await asyncio.get_running_loop().connect_write_pipe(factory, end)


def text(transport):
    """repr() with the names of asyncio's classes in place of ours, without the number of the descriptor."""
    return re.sub(r"<(_Unix)?(Read|Write)PipeTransport", r"<\2", re.sub(r"fd=\d+", "fd=N", repr(transport)))


def fill(transport, extra=100 * KB):
    """Write until more than `extra` bytes wait; what was written."""
    written = bytearray()
    for number in range(1000):
        if transport.get_write_buffer_size() > extra:
            break
        chunk = pattern(50_000 + number)
        transport.write(chunk)
        written += chunk
    return bytes(written)


async def drain(end, count):
    """Take so many bytes as they come."""
    got = bytearray()
    while len(got) < count:
        got += await eventually(lambda: take(end))
    return bytes(got)
