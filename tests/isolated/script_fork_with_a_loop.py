"""A child after fork() leaves the parent's loop alone and makes one of its own; the parent's goes on hearing
everything.
"""

import asyncio
import os
import socket
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")
loop = new_loop()
got = []


class P(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        got.append(data)
        self.transport.write(data.upper())


async def start():
    server = await loop.create_server(P, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()


server, address = loop.run_until_complete(start())
a, b = socket.socketpair()
a.setblocking(False)
loop.add_reader(a, lambda: got.append(a.recv(10)))
status = []
for how in ("outside", "inside"):

    def child():
        mine = new_loop()
        assert mine.run_until_complete(asyncio.sleep(0.001, 7)) == 7
        mine.close()
        del mine
        os._exit(0)

    def fork():
        pid = os.fork()
        if pid == 0:
            try:
                asyncio._set_running_loop(None)
                child()
            finally:
                os._exit(9)
        status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    if how == "outside":
        fork()
    else:
        loop.call_soon(fork)
        loop.call_soon(loop.stop)
        loop.run_forever()
assert status == [0, 0], status


async def talk():
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"HELLO"
    writer.close()
    await writer.wait_closed()
    b.send(b"byte")
    loop.call_soon_threadsafe(got.append, "safe")
    await asyncio.sleep(0.02)


loop.run_until_complete(talk())
assert got[0] == b"hello" and set(got[1:]) == {b"byte", "safe"}, got
server.close()
loop.run_until_complete(asyncio.sleep(0))
loop.remove_reader(a)
loop.close()
print("ok")
