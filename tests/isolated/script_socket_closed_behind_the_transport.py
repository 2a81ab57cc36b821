"""The user closes the socket that he gave to a transport: no crash, and nobody else's descriptor is closed."""

import asyncio
import contextlib
import socket
import warnings

from kinds import KIND, new_loop

warnings.simplefilter("ignore")


class P(asyncio.Protocol):
    def __init__(self):
        self.lost = 0

    def connection_lost(self, exc):
        self.lost += 1


async def one(loop, act, kept):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    transport, protocol = await loop.create_connection(P, sock=ours)
    if kept:
        transport.write(bytes(1 << 24))
    ours.close()
    other = socket.socket()
    await asyncio.sleep(0)
    if act == "write":
        transport.write(b"x")
    elif act == "peer":
        theirs.send(b"x")
    elif act == "peer closes":
        theirs.close()
    else:
        getattr(transport, act)()
    await asyncio.sleep(0.005)
    with contextlib.suppress(Exception):
        transport.abort()
    await asyncio.sleep(0.005)
    assert other.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM, (act, kept)
    other.close()
    theirs.close()


for act in ("write", "peer", "peer closes", "close", "abort", "pause_reading"):
    for kept in (False, True):
        if kept and KIND == "asyncio":
            continue  # its selector raises out of the run
        loop = new_loop()
        loop.set_exception_handler(lambda loop, context: None)
        loop.run_until_complete(one(loop, act, kept))
        loop.close()
print("ok")
