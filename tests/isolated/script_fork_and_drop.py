"""The child drops, collects and ends normally with the parent's loop in its memory: the parent stays able to hear."""

import asyncio
import gc
import os
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")
loop = new_loop()
transports = []


async def start():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()


server, address = loop.run_until_complete(start())
pid = os.fork()
if pid == 0:
    parents, loop = loop, None
    del parents, server
    gc.collect()
    raise SystemExit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def talk():
    reader, writer = await asyncio.open_connection(*address)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


loop.run_until_complete(talk())
server.close()
loop.run_until_complete(asyncio.sleep(0))
loop.close()
print("ok")
