"""A child forked inside a protocol's method ends by SystemExit, as a program's does, and by all that asyncio.run() does
then: it takes nothing of the parent's data or clients.
"""

import asyncio
import os
import socket
import warnings

from kinds import KIND, new_loop, skip

if KIND == "asyncio":
    skip("asyncio's child reads what its parent's connections receive")
warnings.simplefilter("ignore")
PARENT = os.getpid()
COUNT = 6
forked, got, status = [], [], []


def fork_once(where):
    if where in forked or os.getpid() != PARENT:
        return
    forked.append(where)
    pid = os.fork()
    if pid == 0:
        raise SystemExit(7)
    status.append((where, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


def used(what):
    """Something was handed to a protocol; in a child that is the parent's."""
    if os.getpid() != PARENT:
        os._exit(9)
    got.append(what)


class Plain(asyncio.Protocol):
    where = "data_received"

    def connection_made(self, transport):
        if self.where == "connection_made":
            fork_once(self.where)

    def data_received(self, data):
        used(data)
        if self.where == "data_received":
            fork_once(self.where)

    def eof_received(self):
        used(b"eof")
        if self.where == "eof_received":
            fork_once(self.where)


class Buffered(asyncio.BufferedProtocol):
    where = "buffer_updated"

    def get_buffer(self, hint):
        if self.where == "get_buffer":
            fork_once(self.where)
        self.buffer = bytearray(100)
        return self.buffer

    def buffer_updated(self, count):
        used(bytes(self.buffer[:count]))
        if self.where == "buffer_updated":
            fork_once(self.where)

    def eof_received(self):
        used(b"eof")


def pairs(kind):
    """All have data in the same turn, whichever comes first forks."""

    async def main():
        peers = []
        for _ in range(COUNT):
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            await loop.create_connection(kind, sock=ours)
            peers.append(theirs)
        await asyncio.sleep(0)
        for n, peer in enumerate(peers):
            peer.send(b"%d" % n)
            peer.shutdown(socket.SHUT_WR)
        while len(got) < 2 * COUNT:
            await asyncio.sleep(0.001)
        for peer in peers:
            peer.close()

    return main


async def clients():
    def factory():
        used(b"client")
        fork_once("factory")
        return asyncio.Protocol()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    peers = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(COUNT)]
    while len(got) < COUNT:
        await asyncio.sleep(0.001)
    for peer in peers:
        peer.close()
    server.close()
    await asyncio.sleep(0.005)


def end_as_run_does(code):
    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()

        async def ended():
            return await asyncio.gather(*tasks, return_exceptions=True)

        loop.run_until_complete(ended())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        os._exit(code)
    finally:
        os._exit(10)


def run(main, expected):
    global loop
    loop = new_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), 5))
    except SystemExit as exc:
        if os.getpid() == PARENT:
            raise
        end_as_run_does(exc.code)
    except BaseException:
        if os.getpid() == PARENT:
            raise
    if os.getpid() != PARENT:
        os._exit(8)
    assert sorted(got) == expected, got
    got.clear()
    loop.close()


both = sorted([b"%d" % n for n in range(COUNT)] + [b"eof"] * COUNT)
for kind, places in ((Plain, ("connection_made", "data_received", "eof_received")), (Buffered, ("buffer_updated",))):
    for place in places:
        run(pairs(type("Forks", (kind,), {"where": place})), both)
run(pairs(type("Forks", (Buffered,), {"where": "get_buffer"})), both)
run(clients, [b"client"] * COUNT)
assert len(status) == 6, status
assert all(code == 7 for _, code in status), status
print("ok")
