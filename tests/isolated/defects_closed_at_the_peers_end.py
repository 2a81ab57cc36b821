"""A loop that stops as its peer ends, and is closed, dropped or left to the exit, with connection_lost() to come."""

import asyncio
import gc
import socket
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")
kept = []


def ends(family, peers_end, loops_end):
    loop = new_loop()

    async def main():
        if family == "tcp":
            with socket.create_server(("127.0.0.1", 0)) as listener:
                theirs = socket.create_connection(listener.getsockname())
                ours, _ = listener.accept()
        else:
            ours, theirs = socket.socketpair()
        kept.append(theirs)
        ours.setblocking(False)
        await loop.create_connection(asyncio.Protocol, sock=ours)
        if peers_end == "shutdown":
            theirs.shutdown(socket.SHUT_WR)
        elif peers_end == "close":
            theirs.close()
        else:
            theirs.send(b"data")

    loop.run_until_complete(main())
    if loops_end == "close":
        loop.close()
    elif loops_end == "keep":
        kept.append(loop)
    loop = None
    gc.collect()


for family in ("tcp", "unix"):
    for peers_end in ("shutdown", "close", "send"):
        for loops_end in ("close", "drop", "keep"):
            ends(family, peers_end, loops_end)
print("ok")
