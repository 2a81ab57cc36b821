"""The views of a loop's inside, asked for while the collector runs destructors that change it."""

import asyncio
import gc
import socket

from kinds import KIND, new_loop

loop = new_loop()
loop.set_debug(False)
pairs = [socket.socketpair() for _ in range(200)]
a, b = socket.socketpair()
servers = []


async def listen():
    return await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)


class Changes:
    """Garbage that only the collector finds, and that changes the loop when it does."""

    def __init__(self):
        self.me = self

    def __del__(self):
        for _ in range(60):
            loop.call_soon(bool, 1)
            loop.call_later(3600, bool, 2)
        for handle in list(timers):
            handle.cancel()
        timers.clear()
        if servers:
            servers.pop().close()
        loop.remove_reader(a)
        loop.remove_writer(a)
        if pairs:
            for sock in pairs.pop():
                loop.add_reader(sock, bool)
                loop.remove_reader(sock)
                sock.close()


def views():
    yield lambda: [repr(handle) for handle in loop._ready]
    yield lambda: [repr(handle) for handle in loop._scheduled]
    yield lambda: repr(loop)
    if KIND == "uvpy":
        yield loop._debug_handles
        yield loop._core_stats
        yield lambda: loop._watched(a)
        yield lambda: loop._watched(a.fileno())


if KIND == "asyncio":  # its own queue and heap: only what does not walk over them
    views = lambda: [lambda: len(loop._ready), lambda: len(loop._scheduled), lambda: repr(loop)]  # noqa: E731

gc.collect()
gc.disable()
timers = []
for view in views():
    for _ in range(6):
        servers.append(loop.run_until_complete(listen()))
        for n in range(30):
            loop.call_soon(bool, n)
            timers.append(loop.call_later(3600, bool, n))
        loop.add_reader(a, bool)
        loop.add_writer(a, bool)
        threshold = gc.get_threshold()
        for _ in range(3):
            Changes()
        gc.set_threshold(1, 1, 1)
        gc.enable()
        found = view()
        gc.disable()
        gc.set_threshold(*threshold)
        repr(found)
        gc.collect()
        loop.call_soon(loop.stop)
        loop.run_forever()
loop.close()
for sock in (a, b, *(s for pair in pairs for s in pair)):
    sock.close()
print("ok")
