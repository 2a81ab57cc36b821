"""A program that closes all descriptors to become a daemon, with a loop made before: its loop is lost, by an error and
not by an abort, and the files that it opens then stay open when the loop is closed, collected or left to the exit.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import warnings

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("asyncio closes the files that have its numbers by then")
warnings.simplefilter("ignore")
signal.alarm(25)


def daemon(used, end):
    loop = new_loop()
    loop.set_exception_handler(lambda loop, context: None)
    if used:
        loop.run_until_complete(asyncio.sleep(0))
    if used == "full":
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
        transport.write(bytes(1 << 22))
        server = loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
        loop.keeps = (ours, theirs, transport, server)
        loop.add_reader(theirs, bool)
    os.closerange(3, 256)
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
    before = [os.fstat(fd) for fd in files]
    if end == "run":
        with contextlib.suppress(RuntimeError):
            loop.call_later(0.01, loop.stop)
        for _ in range(2):
            with contextlib.suppress(OSError, ValueError):
                loop.run_forever()
                raise AssertionError("it ran")
    if end in ("run", "close"):
        with contextlib.suppress(OSError):
            loop.close()
        assert loop.is_closed()
    if used != "full":  # sockets of Python close their numbers when they are collected, as they do anywhere
        loop = None
        gc.collect()
        for fd, stat in zip(files, before, strict=True):
            assert os.path.samestat(os.fstat(fd), stat), fd
    if end == "exit":
        raise SystemExit(0)
    os._exit(0)


new_loop().close()
for used in ("", "ran", "full"):
    for end in ("run", "close", "drop", "exit"):
        print(used, end, flush=True)
        pid = os.fork()
        if pid == 0:
            daemon(used, end)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == 0, code
print("ok")
