"""Threads close and reopen descriptors that a loop watches, while it polls: the loop lives on."""

import contextlib
import os
import threading
import time

from kinds import new_loop

loop = new_loop()
loop.set_exception_handler(lambda loop, context: None)
stop = threading.Event()


def churn():
    while not stop.is_set():
        fds = [os.pipe() for _ in range(5)]
        for r, _ in fds:
            loop.call_soon_threadsafe(watch, r)
        time.sleep(0.0005)
        for r, w in fds:
            os.close(r)
            os.close(w)
        for r, _ in fds:
            loop.call_soon_threadsafe(loop.remove_reader, r)


def watch(fd):
    with contextlib.suppress(OSError, ValueError):
        loop.add_reader(fd, lambda: loop.remove_reader(fd))


threads = [threading.Thread(target=churn) for _ in range(2)]
for thread in threads:
    thread.start()
loop.call_later(0.4, loop.stop)
loop.run_forever()
stop.set()
for thread in threads:
    thread.join()
loop.call_soon(loop.stop)
loop.run_forever()
loop.close()
print("ok")
