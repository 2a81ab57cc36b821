"""Callbacks: from the loop itself and from another thread."""

from __future__ import annotations

import ctypes
import functools
import queue
import select
import socket
import threading
from collections.abc import Callable

import native

from cases.kinds import TURN, Case, Loop, Micro, in_turns, nothing

_watched: list[socket.socket] = []


def _burst(loop: Loop, size: int) -> None:
    def operations(count: int) -> None:
        call_soon = loop.call_soon
        for _ in range(count):
            call_soon(nothing)

    in_turns(loop, size, operations)


def _chain(loop: Loop, size: int) -> None:
    call_soon = loop.call_soon
    left = size

    def link() -> None:
        nonlocal left
        left -= 1
        if left:
            call_soon(link)
        else:
            loop.stop()

    call_soon(link)
    loop.run_forever()


def _chain_watched(loop: Loop, size: int) -> None:
    """Every turn has to look at the descriptors: a system call is the floor."""
    if not _watched:
        for _ in range(100):
            ends = socket.socketpair()
            ends[0].setblocking(False)
            loop.add_reader(ends[0].fileno(), nothing)
            _watched.extend(ends)
    _chain(loop, size)


@functools.cache
def _turns() -> tuple[ctypes.PyDLL, Callable[[Callable[[], None]], None], select.epoll]:
    library = ctypes.PyDLL(str(native.turns()))
    library.make_call_soon.restype = library.run_turns.restype = ctypes.py_object
    watched = select.epoll()
    for _ in range(100):
        ends = socket.socketpair()
        watched.register(ends[0], select.EPOLLIN)
        _watched.extend(ends)
    return library, library.make_call_soon(), watched


def _chain_watched_bare(size: int) -> None:
    """By native/turns.c: an epoll_wait and the callback, for each."""
    library, call_soon, watched = _turns()
    left = size

    def link() -> None:
        nonlocal left
        left -= 1
        if left:
            call_soon(link)

    call_soon(link)
    library.run_turns(watched.fileno())


def _threadsafe_own(loop: Loop, size: int) -> None:
    def operations(count: int) -> None:
        call = loop.call_soon_threadsafe
        for _ in range(count):
            call(nothing)

    in_turns(loop, size, operations)


def _threadsafe_trip(loop: Loop, size: int) -> None:
    """The loop asks a thread, which answers by call_soon_threadsafe, and so on."""
    inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    left = size

    def thread() -> None:
        while answer := inbox.get():
            loop.call_soon_threadsafe(answer)

    def answered() -> None:
        nonlocal left
        left -= 1
        if left:
            inbox.put(answered)
        else:
            loop.stop()

    other = threading.Thread(target=thread)
    other.start()
    inbox.put(answered)
    loop.run_forever()
    inbox.put(None)
    other.join()


CASES: dict[str, Case] = {
    "call_soon_burst": Micro(text=f"call_soon, {TURN:,} callbacks a turn", run=_burst, size=5_000, counted=5_000),
    "call_soon_chain": Micro(text="call_soon, each callback schedules the next", run=_chain, size=5_000, counted=1_000),
    "call_soon_chain_watched": Micro(
        text="the chain with 100 idle descriptors watched (without a loop: one epoll_wait and the callback, in C)",
        run=_chain_watched,
        size=2_000,
        counted=500,
        bare=_chain_watched_bare,
    ),
    "threadsafe_own": Micro(
        text="call_soon_threadsafe from the loop's own thread", run=_threadsafe_own, size=5_000, counted=5_000
    ),
    "threadsafe_trip": Micro(
        text="round trip with another thread by call_soon_threadsafe, pinned to one core",
        run=_threadsafe_trip,
        size=500,
        figure="rate",
    ),
    "threadsafe_trip_free": Micro(
        text="the same where the kernel places both", run=_threadsafe_trip, size=500, figure="rate", pinned=False
    ),
}
