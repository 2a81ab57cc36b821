"""Pipe transports: both ends on one loop."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable

from cases.kinds import Case, Loop, Micro


class _Pong(asyncio.Protocol):
    """What comes out of one pipe goes into the next."""

    def __init__(self) -> None:
        self.write: Callable[[bytes], None] = _ignore

    def data_received(self, data: bytes) -> None:
        self.write(data)


class _Ping(_Pong):
    def __init__(self, loop: Loop, left: int) -> None:
        super().__init__()
        self.loop, self.left = loop, left

    def data_received(self, data: bytes) -> None:
        self.left -= 1
        if self.left:
            self.write(data)
        else:
            self.loop.stop()


def _ignore(data: bytes) -> None:
    pass


async def _pipe(
    loop: Loop, reader: asyncio.Protocol, writer: asyncio.BaseProtocol
) -> tuple[asyncio.ReadTransport, asyncio.WriteTransport]:
    r, w = os.pipe()
    reading, _ = await loop.connect_read_pipe(lambda: reader, io.FileIO(r, "rb"))
    writing, _ = await loop.connect_write_pipe(lambda: writer, io.FileIO(w, "wb"))
    return reading, writing


async def _ended(*transports: asyncio.BaseTransport) -> None:
    for transport in transports:
        transport.close()
    for _ in range(5):
        await asyncio.sleep(0)


def _echo(loop: Loop, size: int) -> None:
    ping, pong = _Ping(loop, size), _Pong()
    there = loop.run_until_complete(_pipe(loop, pong, asyncio.BaseProtocol()))
    back = loop.run_until_complete(_pipe(loop, ping, asyncio.BaseProtocol()))
    ping.write, pong.write = there[1].write, back[1].write
    ping.write(bytes(64))
    loop.run_forever()
    loop.run_until_complete(_ended(*there, *back))


class _Counter(asyncio.Protocol):
    def __init__(self, loop: Loop, left: int) -> None:
        self.loop, self.left = loop, left

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        if not self.left:
            self.loop.stop()


CHUNK = bytes(64 * 1024)


class _Source(asyncio.BaseProtocol):
    """Writes chunks while it may."""

    def __init__(self, left: int) -> None:
        self.left, self.paused = left, False
        self.write: Callable[[bytes], None] = _ignore

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.go()

    def go(self) -> None:
        while self.left and not self.paused:
            self.left -= 1
            self.write(CHUNK)


def _stream(loop: Loop, size: int) -> None:
    source = _Source(size)
    transports = loop.run_until_complete(_pipe(loop, _Counter(loop, size * len(CHUNK)), source))
    source.write = transports[1].write
    loop.call_soon(source.go)
    loop.run_forever()
    loop.run_until_complete(_ended(*transports))


CASES: dict[str, Case] = {
    "pipe_echo": Micro(text="64 bytes there and back through two pipes of one loop", run=_echo, size=500, counted=100),
    "pipe_stream": Micro(
        text="chunks of 64 KiB through a pipe, both ends on one loop", run=_stream, size=200, counted=20
    ),
}
