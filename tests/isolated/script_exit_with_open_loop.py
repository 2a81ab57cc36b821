"""The interpreter ends with a loop that was run and never closed, full of pending things."""

import asyncio
import socket
import warnings

from kinds import new_loop

warnings.simplefilter("ignore", ResourceWarning)
loop = new_loop()
a, b = socket.socketpair()
for sock in (a, b):
    sock.setblocking(False)
loop.add_reader(a, print)
loop.add_writer(b, print)
loop.call_later(3600, print)
transport, protocol = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=socket.socketpair()[0]))
server = loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
loop.call_soon(print)
loop.call_soon_threadsafe(print)
fut = loop.create_future()
fut.add_done_callback(print)
print("ok")
