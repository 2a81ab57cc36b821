"""Every method of loop, handles, transport and server called with junk: exceptions of Python or a result, never a
crash.
"""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")
logging.disable()


class Hostile:
    """Raises wherever it is asked for something."""

    def __index__(self):
        raise ZeroDivisionError

    __float__ = __int__ = __bool__ = __len__ = __iter__ = __hash__ = __index__

    def __eq__(self, other):
        raise ZeroDivisionError

    def fileno(self):
        raise ZeroDivisionError

    def __getattr__(self, name):
        raise ZeroDivisionError


JUNK = (None, "x", b"", -1, 1.5, 2**70, object(), [], float("nan"), int, Hostile(), Hostile, lambda *a: None, "\ud800")
# What would stop, close, wait for ever or go elsewhere is left out.
LEFT_OUT = {"run_forever", "run_until_complete", "close", "stop", "set_debug", "slow_callback_duration"}


def methods(thing):
    for name in sorted(set(dir(thing)) - LEFT_OUT):
        if name.startswith("__") or (name.startswith("_") and not isinstance(thing, asyncio.AbstractEventLoop)):
            continue
        if name.startswith("_") and name not in (
            "_timer_handle_cancelled",
            "_add_callback",
            "_add_reader",
            "_remove_reader",
        ):
            continue
        with contextlib.suppress(Exception):
            if callable(getattr(thing, name)):
                yield name


def settle(result):
    if asyncio.iscoroutine(result):
        result.close()
    else:
        with contextlib.suppress(Exception):
            result.cancel()


def bombard(thing, loop):
    for name in methods(thing):
        for arguments in [
            (),
            *((x,) for x in JUNK),
            *((x, y) for x in JUNK for y in JUNK),
            (None,) * 7,
            (bool, None, None),
        ]:
            if name in ("call_at", "_timer_handle_cancelled") and not (
                arguments and isinstance(arguments[0], (int, float))
            ):
                continue  # stock keeps the nonsense in its heap
            if name in ("call_at", "call_later") and arguments and arguments[0] != arguments[0]:
                continue  # NaN: stock's poll raises
            if name == "run_in_executor" and arguments[:1] == (None,):
                continue
            with contextlib.suppress(Exception):
                settle(getattr(thing, name)(*arguments))
    for keywords in ({"context": 5}, {"nonsense": 1}, {"callback": None}, {"\ud800": 1}):
        for name in methods(thing):
            with contextlib.suppress(Exception):
                settle(getattr(thing, name)(**keywords))


def quiet(loop, context):
    pass


loop = new_loop()
loop.set_exception_handler(quiet)
a, b = socket.socketpair()
a.setblocking(False)


async def main():
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    things = [loop.call_soon(bool), loop.call_later(9, bool), loop.call_soon_threadsafe(bool), transport, server]
    r, w = os.pipe()
    reading, _ = await loop.connect_read_pipe(asyncio.Protocol, open(r, "rb", buffering=0))
    writing, _ = await loop.connect_write_pipe(asyncio.Protocol, open(w, "wb", buffering=0))
    things += [reading, writing]
    things += [transport.get_extra_info("socket"), loop]
    for thing in things:
        bombard(thing, loop)
        gc.collect()
    for kind in {type(thing) for thing in things[:5]}:
        for arguments in ((), (None,), (loop,), (loop, a, None), (bool, (), loop), (1, 2, 3, 4)):
            with contextlib.suppress(Exception):
                made = kind(*arguments)
                repr(made)
                bombard(made, loop)
            made = None
    transport.close()
    server.close()
    for pipe in (reading, writing):
        pipe.set_protocol(asyncio.Protocol())
        pipe.close()


with contextlib.suppress(Exception):
    loop.run_until_complete(main())
gc.collect()
loop.set_task_factory(None)
loop.set_exception_handler(quiet)
for _ in range(3):
    loop.call_soon(loop.stop)
    loop.run_forever()
for task in asyncio.all_tasks(loop):
    task.cancel()
assert loop.run_until_complete(asyncio.sleep(0.001, 3)) == 3
loop.close()
fresh = new_loop()
assert fresh.run_until_complete(asyncio.sleep(0.001, 4)) == 4
fresh.close()
print("ok")
