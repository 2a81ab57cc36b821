"""Loops that are dropped unclosed give every descriptor back, also where the warning about it is an error."""

import asyncio
import gc
import os
import socket
import sys
import warnings

from kinds import new_loop

FOLDER = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
said = []
sys.unraisablehook = lambda args: said.append(type(args.exc_value))


def drop_one(full):
    loop = new_loop()
    if full:
        a, b = socket.socketpair()
        loop.add_reader(a, lambda: loop)
        loop.add_writer(b, lambda: loop)
        loop.call_later(3600, lambda: loop)
        loop.call_soon(lambda: loop)
        c, d = socket.socketpair()
        transport, protocol = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=c))
        transport.write(bytes(4 << 20))
        server = loop.run_until_complete(loop.create_server(lambda: loop, "127.0.0.1", 0))
        loop.keeps = (a, b, d, transport, protocol, server)


new_loop().close()
gc.collect()
for action in ("ignore", "error"):
    warnings.simplefilter(action)
    for full in (False, True):
        before = len(os.listdir(FOLDER))
        for _ in range(5):
            drop_one(full)
        gc.collect()
        gc.collect()
        after = len(os.listdir(FOLDER))
        assert after == before, (action, full, before, after)
assert ResourceWarning in said, said
assert set(said) == {ResourceWarning}, said
print("ok")
