"""Callbacks that hold the callback before them as an argument, thousands deep: freed without deep recursion."""

import gc
import threading

from kinds import new_loop

DEPTH = 30_000
loop = new_loop()
loop.set_debug(False)  # in debug mode each handle keeps a traceback


def chain(make):
    last = None
    for _ in range(DEPTH):
        last = make(last)
    return last


def run_once():
    loop.call_soon(loop.stop)
    loop.run_forever()


def timers(last):
    return loop.call_later(0, bool, last)


def never(last):
    """A timer that is cancelled, and dropped with what it holds."""
    return loop.call_later(3600, bool, last)


def mixed(last):
    makers = (loop.call_soon, loop.call_soon_threadsafe)
    return makers[isinstance(last, list)](bool, [last])


def work():
    for make in (lambda last: loop.call_soon(bool, last), lambda last: loop.call_soon_threadsafe(bool, last), timers):
        last = chain(make)
        del last
        run_once()
        run_once()
    chain(mixed)
    run_once()
    handles = []
    chain(lambda last: handles.append(never(last)) or handles[-1])
    for handle in handles:
        handle.cancel()
    handles.reverse()
    last = handles.pop(0)
    handles.clear()
    del handle, last
    # Never run: the chain ends with the loop.
    chain(lambda last: loop.call_soon(bool, last))
    chain(never)
    loop.close()
    gc.collect()


threading.stack_size(1024 * 1024)  # a deep recursion shows at once
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert loop.is_closed()
print("ok")
