"""A child after fork() may close or drop the parent's pipe transports: the parent's go on, and stay non-blocking."""

import asyncio
import gc
import os
import warnings

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("asyncio's child takes the parent's readers away")
warnings.simplefilter("ignore")
loop = new_loop()
loop.set_exception_handler(lambda loop, context: None)
got = []


class P(asyncio.Protocol):
    def data_received(self, data):
        got.append(data)


async def start():
    r, w = os.pipe()
    reading, _ = await loop.connect_read_pipe(P, open(r, "rb", buffering=0))
    writing, _ = await loop.connect_write_pipe(P, open(w, "wb", buffering=0))
    return reading, writing


def fork(child):
    pid = os.fork()
    if pid == 0:
        try:
            child()
            os._exit(0)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def say(data):
    got.clear()
    writing.write(data)
    while b"".join(got) != data:
        await asyncio.sleep(0)
    assert not os.get_blocking(reading._fileno) and not os.get_blocking(writing._fileno)


reading, writing = loop.run_until_complete(start())
loop.run_until_complete(say(b"before"))


def close():
    for transport in (reading, writing):
        transport.close()
        transport._call_connection_lost(None)


def drop():
    global reading, writing, loop
    reading.pause_reading()
    loop.close()
    reading = writing = loop = None
    gc.collect()


def own():
    mine = new_loop()
    mine.run_until_complete(asyncio.sleep(0.001))
    mine.close()


for child in (close, drop, own):
    fork(child)
    loop.run_until_complete(say(b"after"))


loop.run_until_complete(say(b"again"))
reading.close()
writing.close()
loop.run_until_complete(asyncio.sleep(0.001))
loop.close()
print("ok")
