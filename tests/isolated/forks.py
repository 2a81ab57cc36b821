"""What the scripts about forking share: a child that answers, and a parent's loop that must go on hearing."""

import asyncio
import os
import signal
import socket
import traceback


def answer_of_a_child(act):
    """Fork; what `act()` gives in the child, as text, or how it failed. The child must end by itself."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(15)
            try:
                said = repr(act())
            except BaseException:
                said = traceback.format_exc()
            os.write(w, said.encode())
        finally:
            os._exit(0)
    os.close(w)
    with open(r, "rb") as file:
        said = file.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, (status, said)
    return said


class Ears:
    """Everything by which a loop hears: a reader, a server with a client, a timer, another thread."""

    async def begin(self):
        loop = asyncio.get_running_loop()
        self.a, self.b = socket.socketpair()
        self.a.setblocking(False)
        self.heard = []
        loop.add_reader(self.a, lambda: self.heard.append(self.a.recv(9)))
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.reader, self.writer = await asyncio.open_connection(*self.server.sockets[0].getsockname())
        await self.check()
        return self

    async def serve(self, reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()

    async def check(self):
        loop = asyncio.get_running_loop()
        self.writer.write(b"hello\n")
        assert await asyncio.wait_for(self.reader.readline(), 5) == b"HELLO\n"
        self.b.send(b"!")
        while not self.heard:
            await asyncio.sleep(0.001)
        assert self.heard == [b"!"], self.heard
        self.heard.clear()
        assert await asyncio.wait_for(loop.run_in_executor(None, lambda: 6), 5) == 6

    async def end(self):
        await self.check()
        asyncio.get_running_loop().remove_reader(self.a)
        self.writer.close()
        self.server.close()
        await self.writer.wait_closed()
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > 1:  # those that serve see the end
                await asyncio.sleep(0.001)
        self.a.close()
        self.b.close()
        await asyncio.get_running_loop().shutdown_default_executor()
