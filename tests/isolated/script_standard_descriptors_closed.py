"""A program without standard streams gets 0, 1 and 2 for its sockets."""

import asyncio
import os
import socket

from kinds import new_loop

saved = os.dup(1)
for fd in (0, 1, 2):
    os.close(fd)
loop = new_loop()
a, b = socket.socketpair()
c, d = socket.socketpair()
for s in (a, b, c, d):
    s.setblocking(False)
got = []


async def main():
    loop.add_reader(a, lambda: got.append(a.recv(9)))
    b.send(b"!")
    while not got:
        await asyncio.sleep(0)
    loop.remove_reader(a)
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=c)
    transport.write(b"x")
    await asyncio.sleep(0)
    got.append(d.recv(9))
    transport.close()
    await asyncio.sleep(0.01)


loop.run_until_complete(main())
loop.close()
for s in (a, b, c, d):
    s.close()
os.dup2(saved, 1)
assert got == [b"!", b"x"], got
os.write(1, b"ok\n")
os.open(os.devnull, os.O_RDWR)
os.dup2(os.open(os.devnull, os.O_RDWR), 2)
os._exit(0)
