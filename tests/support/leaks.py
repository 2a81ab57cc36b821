"""What a test may have left behind, and the end of a loop that was under test. Used by conftest.py only."""

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import time

FOLDER = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


def fds():
    """The open descriptors of this process and what each is."""
    found = {}
    for name in os.listdir(FOLDER):
        with contextlib.suppress(OSError):
            found[int(name)] = (
                os.readlink(f"{FOLDER}/{name}") if FOLDER.startswith("/proc") else os.fstat(int(name)).st_ino
            )
    return found


class Book:
    """A list of things that should not have happened, which a test may take because it expects them."""

    def __init__(self, title):
        self.title, self.entries = title, []

    def add(self, entry):
        self.entries.append(entry)

    def take(self):
        found, self.entries = self.entries, []
        return found

    def demand_empty(self):
        left = self.take()
        assert not left, f"{self.title}: {left}"


class _Log(logging.Handler):
    def __init__(self, book):
        super().__init__(logging.WARNING)
        self.book = book

    def emit(self, record):
        self.book.add(record)


class Watch:
    def __init__(self):
        self.log = Book("asyncio's log says")
        self.unraisable = Book("nobody could catch")


@contextlib.contextmanager
def watch():
    """Watch a test, and demand at its end that it was clean."""
    found = Watch()
    hooks = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda args: found.unraisable.add(
        (args.exc_value, args.object if args.object is None else repr(args.object))
    )
    threading.excepthook = lambda args: found.unraisable.add((args.exc_value, repr(args.thread)))
    logger, handler = logging.getLogger("asyncio"), _Log(found.log)
    logger.addHandler(handler)
    threads, open_before = set(threading.enumerate()), fds()
    try:
        yield found
        gc.collect()
        found.unraisable.demand_empty()
        for thread in set(threading.enumerate()) - threads:
            thread.join(5)
        left = set(threading.enumerate()) - threads
        assert not left, f"threads left: {left}"
        new = {fd: what for fd, what in fds().items() if open_before.get(fd) != what}
        assert not new, f"descriptors left open: {new}"
        found.log.demand_empty()
    finally:
        logger.removeHandler(handler)
        sys.unraisablehook, threading.excepthook = hooks


def handles(loop):
    """What a loop still watches beyond its own."""
    if hasattr(loop, "_debug_handles"):
        return [row for row in loop._debug_handles() if row["kind"] not in ("timer", "signal")]
    own = {loop._ssock.fileno()} if loop._ssock is not None else set()
    return [key for fd, key in loop._selector.get_map().items() if fd not in own]


def end_loop(loop):
    """End a loop as a Runner does, and demand that it watches nothing any more."""
    if loop.is_closed():
        return
    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=5))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        end = time.monotonic() + 2
        while (left := handles(loop)) and time.monotonic() < end:
            loop.run_until_complete(asyncio.sleep(0.002))
            gc.collect()
        assert not left, f"the loop still watches {left}"
    finally:
        loop.close()
