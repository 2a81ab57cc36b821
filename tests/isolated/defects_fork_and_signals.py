"""Signals of a child are the child's: its wakeup descriptor is the program's own, and its parent is not woken."""

import asyncio
import os
import signal
import socket
import time
import warnings

from kinds import KIND, new_loop

warnings.simplefilter("ignore")


def child_sees(loop):
    """The wakeup descriptor of a child forked while the loop runs."""
    r, w = os.pipe()

    def fork():
        pid = os.fork()
        if pid == 0:
            try:
                for _ in range(20):
                    os.kill(os.getpid(), signal.SIGUSR1)
                os.write(w, b"%d" % signal.set_wakeup_fd(-1))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        loop.stop()

    loop.call_soon(fork)
    loop.run_forever()
    seen = int(os.read(r, 20))
    os.close(r)
    os.close(w)
    return seen


def polls(loop):
    return loop._core_stats()["polls"] if KIND == "uvpy" else 0


async def beside_a_child(loop):
    """How often the loop polled while a child got signals."""
    pid = os.fork()
    if pid == 0:
        try:
            for _ in range(20):
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.005)
        finally:
            os._exit(0)
    before = polls(loop)
    await asyncio.sleep(0.15)
    os.waitpid(pid, 0)
    return polls(loop) - before


signal.signal(signal.SIGUSR1, lambda *args: None)
mine, others = socket.socketpair()
for sock in (mine, others):
    sock.setblocking(False)
loop = new_loop()
assert child_sees(loop) == -1
signal.set_wakeup_fd(mine.fileno())
assert child_sees(loop) in (mine.fileno(), -1)  # -1: asyncio's own fork hook, from 3.12 on
assert signal.set_wakeup_fd(-1) == mine.fileno()
assert loop.run_until_complete(beside_a_child(loop)) < 5
loop.close()
mine.close()
others.close()
print("ok")
