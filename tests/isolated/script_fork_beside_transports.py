"""Children forked beside open transports of all kinds, which they drop, collect, or end with: TLS at work, a
subprocess, pipes, datagrams. In the parent everything goes on.
"""

import asyncio
import gc
import os
import socket
import subprocess
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from forks import Ears, answer_of_a_child
from kinds import KIND, new_loop

from support.certs import Authority

warnings.simplefilter("ignore")


kept = []


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self):
        self.got = []

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.got.append(data)


class Everything:
    async def begin(self):
        loop = asyncio.get_running_loop()
        authority = Authority()
        self.server = await asyncio.start_server(self.echo, "127.0.0.1", 0, ssl=authority.server())
        port = self.server.sockets[0].getsockname()[1]
        self.tls = await asyncio.open_connection("localhost", port, ssl=authority.client(), family=socket.AF_INET)
        self.child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)\nsys.exit(7)"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.udp, self.datagrams = await loop.create_datagram_endpoint(Datagrams, ("127.0.0.1", 0))
        r, self.w = os.pipe()
        self.pipe_reader = asyncio.StreamReader()
        self.pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.pipe_reader), os.fdopen(r, "rb", 0)
        )

    async def echo(self, reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()

    async def check(self):
        reader, writer = self.tls
        writer.write(b"secret\n")
        assert await asyncio.wait_for(reader.readline(), 5) == b"SECRET\n"
        self.child.stdin.write(b"line\n")
        assert await asyncio.wait_for(self.child.stdout.readline(), 5) == b"LINE\n"
        self.udp.sendto(b"datagram", self.udp.get_extra_info("sockname"))
        while not self.datagrams.got:
            await asyncio.sleep(0.001)
        assert self.datagrams.got == [b"datagram"]
        self.datagrams.got.clear()
        os.write(self.w, b"piped\n")
        assert await asyncio.wait_for(self.pipe_reader.readline(), 5) == b"piped\n"

    async def end(self):
        self.child.stdin.close()
        assert await asyncio.wait_for(self.child.wait(), 5) == 7
        self.tls[1].close()
        await self.tls[1].wait_closed()
        self.server.close()
        self.udp.close()
        os.close(self.w)
        assert await self.pipe_reader.read() == b""
        self.pipe.close()
        await asyncio.sleep(0)


def drop(things):
    # A StreamWriter that is dropped closes its transport, and that of TLS says goodbye on the socket that is the
    # parent's too, under asyncio as well: it is kept.
    kept.append(things.tls)
    vars(things).clear()
    gc.collect()


def run_another(things):
    mine = new_loop()
    assert mine.run_until_complete(asyncio.sleep(0.001, 4)) == 4
    mine.close()
    drop(things)


async def main():
    ears = await Ears().begin()
    things = Everything()
    await things.begin()
    await things.check()
    for act in (drop, run_another):
        said = answer_of_a_child(lambda act=act: act(things))
        assert said == "None", said
        await things.check()
        await ears.check()
    if KIND == "uvpy":  # asyncio's loop, collected at the child's end, makes the parent deaf
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # asyncio's words on tasks and writers that were left open
            sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        await things.check()
        await ears.check()
    await things.end()
    await ears.end()


loop = new_loop()
if hasattr(asyncio, "get_child_watcher"):
    asyncio.set_event_loop(loop)
    asyncio.get_child_watcher().attach_loop(loop)
loop.run_until_complete(main())
if hasattr(asyncio, "get_child_watcher"):
    asyncio.get_child_watcher().attach_loop(None)
    asyncio.set_event_loop(None)
loop.close()
print("ok")
