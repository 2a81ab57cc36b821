"""The loop's own descriptors closed behind its back, as a program does that closes all to become a daemon: errors of
Python at most, never an abort.
"""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import warnings

from kinds import KIND, new_loop

warnings.simplefilter("ignore")
FOLDER = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
signal.alarm(25)


def opened():
    found = set()
    for name in os.listdir(FOLDER):
        with contextlib.suppress(OSError):
            os.fstat(int(name))
            found.add(int(name))
    return found


def loop_and_descriptors(used):
    before = opened()
    loop = new_loop()
    loop.set_exception_handler(lambda loop, context: None)
    if used:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
        server = loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
        loop.keeps = (transport, theirs, server)
        before |= {ours.fileno(), theirs.fileno(), server.sockets[0].fileno()}
    else:
        loop.run_until_complete(asyncio.sleep(0))
    return loop, sorted(opened() - before)


def use_and_close(loop, expect_error):
    """Use it as if nothing had happened."""
    said = None
    for _ in range(2):
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(bool)
            loop.call_later(0.005, loop.stop)
        try:
            loop.run_forever()
        except (OSError, ValueError) as exc:  # ValueError: signal.set_wakeup_fd()'s
            said = exc
    assert said is not None or not expect_error
    try:
        loop.close()
    except OSError:
        assert KIND == "asyncio"  # from 3.15 on the close() of an epoll object tells EBADF
    assert loop.is_closed()


def one(at, used, inside, again):
    loop, mine = loop_and_descriptors(used)
    if at >= len(mine):
        loop.close()
        return False
    fd = mine[at]
    polls = FOLDER == "/proc/self/fd" and "eventpoll" in os.readlink(f"{FOLDER}/{fd}") and KIND == "asyncio"
    if KIND == "asyncio" and not polls:
        loop.close()  # stock cannot be closed without its self-pipe
        return True
    stranger = os.open(os.devnull, os.O_RDONLY)

    def strike():
        os.close(fd)
        if again:
            os.dup2(stranger, fd)

    if inside:
        loop.call_soon(strike)
    else:
        strike()
    use_and_close(loop, polls)
    os.close(stranger)
    with contextlib.suppress(OSError):
        os.close(fd)
    return True


new_loop().close()  # what stays for the process is there now
for used in (False, True):
    for inside in (False, True):
        for again in (False, True):
            for at in range(12):
                print(f"number {at}, used {used}, inside {inside}, again {again}", flush=True)
                if not one(at, used, inside, again):
                    break
if KIND == "asyncio":
    print("ok", flush=True)
    os._exit(0)
loop, mine = loop_and_descriptors(True)
print("all", flush=True)
os.closerange(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1024))
use_and_close(loop, True)
print("ok", flush=True)
os._exit(0)
