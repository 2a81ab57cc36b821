"""A loop that cannot be made or run for want of descriptors says so and leaves none open."""

import asyncio
import contextlib
import errno
import gc
import os
import resource
import socket
import sys
import warnings

from kinds import KIND, new_loop

warnings.simplefilter("ignore")
if KIND == "asyncio":
    sys.unraisablehook = lambda args: None  # its half-made loops fail at their collection
FOLDER = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)


def opened():
    return len(os.listdir(FOLDER))


@contextlib.contextmanager
def at_most(more):
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened() - 1 + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def attempt():
    loop = new_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0.001))
    finally:
        with contextlib.suppress(OSError):
            loop.close()


attempt()
gc.collect()
before = opened()
went = []
for more in range(16):
    try:
        with at_most(more):
            attempt()
        went.append(more)
    except OSError as exc:
        code = exc.errno
        if code != errno.EMFILE:
            raise
    gc.collect()
    assert opened() == before, (more, opened() - before)
assert 15 in went
assert 0 not in went

loop = new_loop()
loop.run_until_complete(asyncio.sleep(0))
a, b = socket.socketpair()
a.setblocking(False)
before = opened()


async def connect():
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
    transport.write(b"x")
    transport.close()


with at_most(1), contextlib.suppress(OSError):
    loop.run_until_complete(connect())
assert loop.run_until_complete(asyncio.sleep(0.001, 5)) == 5
a.close()
b.close()
loop.close()
gc.collect()
attempt()
print("ok")
